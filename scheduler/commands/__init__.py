"""Parse, apply and store batches of commands, and write the replies; used by consumer, API and test kit."""
