"""The long-running processes: their roles, start, work and stop."""
