"""AMQP → the work itself: calls webhooks, runs commands and handlers, and reports what became of it."""
