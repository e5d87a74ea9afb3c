"""Real servers for the whole run; each test has its own database and virtual host."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from support import Host, Sidecar, connected, patiently

from scheduler.dev.servers import Stack, start_stack
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology
from tools import compatibility

# How fast examples are drawn says something about the machine, and nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_terminal_summary(terminalreporter, config):
    """With RECORD, put the outcome into the table of tested versions."""
    if os.environ.get(compatibility.VARIABLE):
        outcomes = {name: len(reports) for name, reports in terminalreporter.stats.items()}
        versions = compatibility.servers()
        compatibility.record(compatibility.row(versions, config.args, outcomes, compatibility.commit()))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """A private Postgres and a private RabbitMQ, started on first use, unless the environment names others."""
    given = {name: os.environ.get(name.upper()) or None for name in ("database_url", "amqp_url")}
    with start_stack(purpose="test", fast=True, **given) as started:
        yield started


@pytest.fixture(scope="session")
def template(stack: Stack) -> str:
    """A migrated database that each test's own is cloned from."""
    url = stack.create_database("scheduler_template")
    patiently(lambda: migrate(url))
    return "scheduler_template"


@pytest.fixture
def empty_database(stack: Stack) -> Iterator[str]:
    url = stack.create_database()
    yield url
    stack.drop_database(url)


@pytest.fixture
def database_url(stack: Stack, template: str) -> Iterator[str]:
    url = stack.create_database(template=template)
    yield url
    stack.drop_database(url)


@pytest.fixture
def latin1_database(stack: Stack) -> Iterator[str]:
    """A migrated database that cannot hold every character."""
    url = stack.database_url.rpartition("/")[0] + "/scheduler_latin1"
    with connected(stack.database_url) as admin, admin.cursor() as cursor:
        admin.autocommit = True
        cursor.execute("CREATE DATABASE scheduler_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    patiently(lambda: migrate(url))
    yield url
    stack.drop_database(url)


@pytest.fixture
def vhost(stack: Stack) -> Iterator[str]:
    """The URL of an empty virtual host."""
    url = stack.create_vhost()
    yield url
    stack.delete_vhost(url)


@pytest.fixture
def amqp_url(vhost: str) -> str:
    """The URL of a virtual host with our topology in it."""
    patiently(lambda: topology.declare(vhost, queue_type="quorum", due_queue_type="default"))
    return vhost


@pytest.fixture
def host(amqp_url: str) -> Iterator[Host]:
    started = Host(amqp_url)
    yield started
    started.close()


@pytest.fixture
def sidecar(database_url: str, amqp_url: str) -> Iterator[Sidecar]:
    """No process yet: `sidecar.up()` starts them. Each must end with exit code 0 unless it was killed."""
    made = Sidecar(database_url, amqp_url)
    yield made
    codes = made.close()
    assert all(code in (0, -9) for code in codes), [p.raw[-3:] for p in made.processes]
