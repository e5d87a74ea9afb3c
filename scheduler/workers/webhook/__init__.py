"""Call webhooks and decide the outcome from the response."""
