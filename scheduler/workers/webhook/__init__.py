"""Calls webhooks: whose turn it is, what is sent, to which address, and what the answer means."""
