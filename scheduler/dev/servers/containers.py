"""Servers in containers, if there is a Docker engine and the optional package testcontainers."""

import gc
import importlib
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scheduler.dev.servers.apt import Say

_POSTGRES_IMAGE = "postgres:16"
_RABBITMQ_IMAGE = "rabbitmq:3.13-management"
_USER = "scheduler"


@dataclass(frozen=True, slots=True)
class Contained:
    """A server in a container; testcontainers' reaper removes it if this process is killed."""

    url: str
    stop: Callable[[], None]
    management_url: str | None = None


def engine_answers() -> bool:
    """Return whether containers can be started: this needs the package and a running engine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        available = _ping()
        # Without an engine the client does not close its socket; collect it here, without a warning.
        gc.collect()
    return available


def _ping() -> bool:
    try:
        importlib.import_module("testcontainers.core.container")
        client = importlib.import_module("docker").from_env()
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:  # noqa: BLE001 - any error means that it is not usable
        return False


def start_postgres(say: Say) -> Contained:
    """Start Postgres in a container."""
    say(f"Starting PostgreSQL in a container ({_POSTGRES_IMAGE})")
    container = _load("postgres", "PostgresContainer")(
        _POSTGRES_IMAGE, username=_USER, password=secrets.token_hex(8), dbname="postgres", driver=None
    ).with_command("-c max_connections=200")
    container.start()
    return Contained(container.get_connection_url(), container.stop)


def start_rabbitmq(say: Say) -> Contained:
    """Start RabbitMQ in a container, with the management API for creating vhosts."""
    say(f"Starting RabbitMQ in a container ({_RABBITMQ_IMAGE})")
    password = secrets.token_hex(8)
    container = _load("rabbitmq", "RabbitMqContainer")(
        _RABBITMQ_IMAGE, port=5672, username=_USER, password=password, vhost="/"
    ).with_exposed_ports(15672)
    container.start()
    host = container.get_container_host_ip()
    return Contained(
        f"amqp://{_USER}:{password}@{host}:{container.get_exposed_port(5672)}/%2F",
        container.stop,
        f"http://{host}:{container.get_exposed_port(15672)}",
    )


def _load(module: str, name: str) -> Any:
    # testcontainers 4.15 moved its modules; the old names still work there, with a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            package = importlib.import_module(f"testcontainers.community.{module}")
        except ModuleNotFoundError:
            package = importlib.import_module(f"testcontainers.{module}")
    return getattr(package, name)
