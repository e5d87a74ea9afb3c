"""Runs: occurrences of tracked jobs with their attempts."""
