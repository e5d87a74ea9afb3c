"""Calls webhooks and decides the outcome from the response."""
