"""A job: what defines it, what commands make of it, what it emits."""
