"""Scheduling rules as pure functions: no I/O, no clock, no environment."""
