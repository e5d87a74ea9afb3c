"""What an operator sees: metrics, health, logs, maintenance."""
