"""The local stack: a private Postgres and RabbitMQ for `scheduler dev`, the tests and the benches."""

from scheduler.dev.servers.errors import ServerFailed, ServersMissing
from scheduler.dev.servers.postgres import PostgresServer
from scheduler.dev.servers.rabbitmq import RabbitServer
from scheduler.dev.servers.stack import Stack
from scheduler.dev.servers.start import start_stack

__all__ = ["PostgresServer", "RabbitServer", "ServerFailed", "ServersMissing", "Stack", "start_stack"]
