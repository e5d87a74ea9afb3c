"""Start the servers, and list every fault in order. Importing a module registers its faults."""

from chaos import (
    breaking_clusters,
    breaking_delayed,
    breaking_networks,
    breaking_postgres,
    breaking_priorities,
    breaking_processes,
    breaking_rabbitmq,
    breaking_runs,
    breaking_webhooks,
    breaking_workers,
    changing_zones,
    soaking,
    upgrading,
)
from chaos.faults import FAULTS, Fault
from scheduler.dev.servers import Stack, start_stack
from scheduler.dev.servers.apt import Say

MODULES = (
    breaking_processes,
    breaking_rabbitmq,
    breaking_postgres,
    breaking_networks,
    breaking_clusters,
    breaking_delayed,
    breaking_priorities,
    breaking_runs,
    breaking_webhooks,
    breaking_workers,
    changing_zones,
    upgrading,
    soaking,
)
ALL: dict[str, Fault] = {
    name: fault for module in MODULES for name, fault in FAULTS.items() if fault.run.__module__ == module.__name__
}
SETTINGS = {
    "track_commit_timestamp": "on",  # to compare the commits of cancels with claims
    "max_connections": "60",
    "wal_level": "replica",
}


def start_servers(say: Say) -> Stack:
    """Start a private Postgres and RabbitMQ, durable as in production."""
    return start_stack(purpose="chaos", say=say, postgres_settings=SETTINGS)
