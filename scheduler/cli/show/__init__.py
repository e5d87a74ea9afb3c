"""Descriptions of jobs and runs for `scheduler job show` and `scheduler run show`."""
