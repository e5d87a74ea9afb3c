"""Fixtures for the tests of the host kit."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from node_support import PARSER, package_soon
from pika.exceptions import ChannelClosedByBroker
from support import Host, patiently

from scheduler.dev.servers import Stack
from scheduler.rabbit import topology

QUEUES = ("scheduler_inbox", "scheduler_results", "mainapp_due", "mainapp_due_dead")


@pytest.fixture(scope="module")
def one_vhost(stack: Stack) -> Iterator[str]:
    url = stack.create_vhost()
    yield url
    stack.delete_vhost(url)


@pytest.fixture
def amqp_url(one_vhost: str) -> str:
    """One virtual host for each file of tests, its queues empty before each test."""
    patiently(lambda: topology.declare(one_vhost, queue_type="quorum", due_queue_type="default"))
    for queue in QUEUES:
        host = Host(one_vhost)
        with suppress(ChannelClosedByBroker):  # the runner's queue may not exist yet
            host.channel.queue_purge(queue)
        host.close()
    return one_vhost


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the slowest thing early: AsyncAPI's parser has more than a hundred packages."""
    if any(item.path.name == "test_asyncapi_parser.py" for item in session.items):
        package_soon(*PARSER)
