"""Observability: metrics, health, logs and traces."""
