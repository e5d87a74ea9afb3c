"""Delayed messages as rows: stored and cancelled, and claimed and settled when they are due."""
