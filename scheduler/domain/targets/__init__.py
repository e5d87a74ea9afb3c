"""Targets: the work that a worker does for a job. A module per kind; `target` registers them."""
