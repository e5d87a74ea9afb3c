"""Executes jobs with a target: calls webhooks, runs commands and handlers, and reports the results."""
