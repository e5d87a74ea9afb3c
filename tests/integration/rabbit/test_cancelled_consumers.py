"""A consumer that the broker cancels reports the reason, and its connection is closed."""

import socket
import threading
from contextlib import closing

import pytest
from pika import spec
from pika.frame import Method
from support import until

from scheduler.dev.servers.ports import LOOPBACK
from scheduler.rabbit.batch_consumer import BatchConsumer
from scheduler.rabbit.command_queue import CommandQueue, declare_command
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.work_queue import WorkQueue


class SpeakingProxy:
    """Passes everything on, and can say something in the broker's name between two frames of it."""

    def __init__(self, port):
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(port,), daemon=True).start()

    def _serve(self, port):
        self.client, _ = self._listener.accept()
        self.server = socket.create_connection((LOOPBACK, port))
        for source, target in ((self.client, self.server), (self.server, self.client)):
            threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    @staticmethod
    def _pass(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass

    def cancel(self, channel, tag):
        self.client.sendall(Method(channel, spec.Basic.Cancel(consumer_tag=tag, nowait=True)).marshal())

    def close(self):
        for each in (self._listener, self.client, self.server):
            each.close()


@pytest.fixture
def proxied(stack, amqp_url):
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    with closing(SpeakingProxy(stack.rabbitmq.port)) as proxy:
        url = amqp_url.replace(f":{stack.rabbitmq.port}/", f":{proxy.port}/")
        with closing(Link(f"{url}?heartbeat=600", "test")) as link:
            yield link, proxy


def consuming(kind, link):
    """Consume a queue; return what does it and the queue's name."""
    if kind == "inbox":
        return BatchConsumer(link, "scheduler_results", 10, lambda _: None), "scheduler_results"
    if kind == "webhooks":
        return WorkQueue(link, "scheduler_webhooks", 10, lambda *_: None), "scheduler_webhooks"
    [name, *_] = declare_command(link, "tidy", "default", "quorum")
    queue = CommandQueue(link, name, "tidy", lambda *_: None)
    queue.open()
    until(lambda: queue._tag in queue._channel.consumer_tags, "it consumes")
    return queue, queue.name


KINDS = pytest.mark.parametrize("kind", ["inbox", "webhooks", "command"])


@KINDS
def test_a_consumer_timeout_is_not_taken_for_a_deleted_queue(proxied, kind):
    """RabbitMQ 4.3 cancels a consumer that does not acknowledge in time."""
    link, proxy = proxied
    consumer, queue = consuming(kind, link)
    proxy.cancel(consumer._channel.channel_number, consumer._tag)
    until(lambda: link.closed, "the connection is closed")
    assert "consumer timeout" in link.closed
    assert queue in link.closed
    assert "deleted" not in link.closed
    if kind == "inbox":
        with pytest.raises(RabbitUnavailable, match="consumer timeout"):
            consumer.take(1, timeout=60)


@KINDS
def test_a_deleted_queue_is_named_as_such(amqp_url, host, kind):
    with closing(Link(amqp_url, "test")) as link:
        _, queue = consuming(kind, link)
        host.channel.queue_delete(queue)
        until(lambda: link.closed, "the connection is closed")
        # The broker may close the channel that checks the queue before the check has its answer.
        deleted = f"the queue {queue} was deleted; it is declared again on the next connection"
        assert link.closed == deleted or f"NOT_FOUND - no queue '{queue}'" in link.closed
