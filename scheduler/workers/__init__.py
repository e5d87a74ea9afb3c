"""The work itself: webhooks called, commands run, and what became of each attempt reported."""
