"""One sidecar for each file of tests about delayed messages: queues and keys are each test's own."""

from collections.abc import Iterator

import pytest
from delayed_support import Shop
from support import Sidecar, until

from scheduler.dev.servers import Stack

PAIRS = "orders:topic,mails:direct,news:fanout,second:topic,by_header:headers"


@pytest.fixture(scope="module")
def vhost(stack: Stack) -> Iterator[str]:
    url = stack.create_vhost()
    yield url
    stack.delete_vhost(url)


@pytest.fixture(scope="module")
def sidecar(stack: Stack, template: str, vhost: str) -> Iterator[Sidecar]:
    """A consumer and a producer, in this order."""
    database = stack.create_database(template=template)
    made = Sidecar(database, vhost).up(SCHEDULER_DELAY_EXCHANGES=PAIRS)
    yield made
    codes = made.close()
    stack.drop_database(database)
    assert codes == [0] * len(codes), [process.raw[-3:] for process in made.processes]


@pytest.fixture
def shop(sidecar: Sidecar) -> Iterator[Shop]:
    """A host; what a test leaves behind is stored by then, and gone."""
    made = Shop(sidecar.amqp_url)
    inbox = {"queue": "scheduler_delay", "passive": True}
    until(lambda: made.channel.queue_declare(**inbox).method.consumer_count, "the consumer")
    yield made
    last = made.queue()
    made.send(last, b"last", x_delay=0)
    made.take(last, 1)
    sidecar.sql("DELETE FROM delayed_messages")
    made.close()
