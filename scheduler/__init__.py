"""A reminder engine for RabbitMQ and Postgres."""

__version__ = "0.2.0"
