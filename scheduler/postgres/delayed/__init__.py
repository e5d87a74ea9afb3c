"""Delayed messages as rows: how they are stored and cancelled, and how those that are due are claimed and settled."""
