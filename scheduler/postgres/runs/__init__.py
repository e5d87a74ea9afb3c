"""Runs as rows: open ones in a small hot table, finished ones in a history that is dropped by the day."""
