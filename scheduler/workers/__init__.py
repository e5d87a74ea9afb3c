"""Execute jobs with a target: call webhooks, run commands and handlers, and report the results."""
