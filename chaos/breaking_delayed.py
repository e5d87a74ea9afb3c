"""Kill everything while many delayed messages are pending."""

import json
import signal
import threading
import time
from collections import Counter
from typing import Any

import pika

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import Stack
from scheduler.rabbit.frames import AmqpMessage
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.publisher import Publisher, Receipt

MANY = 100_000
QUEUE = "chaos_delayed"
FIRST, SPREAD = 25.0, 20.0  # seconds until the first is due, and from the first to the last
AT_ONCE = 1000


@fault("delayed", "everything killed and restarted while delayed messages are pending")
def delayed(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        shop = Shop(world.amqp_url)
        shop.publish(max(1000, int(MANY * scale)))
        result.notes.append(f"{len(shop.due):,} delayed messages")
        # Some are still in the broker's queue, some are being stored, most are in the table.
        kill_everything(stack, world)
        wait_for(lambda: shop.take(world.amqp_url), "every delayed message", FIRST + SPREAD + 240)
        world.settle(result, within=120)
        shop.account(result)
    finally:
        world.close(result)


def kill_everything(stack: Stack, world: World) -> None:
    """Kill -9 all our processes and both servers at once, and restart them."""
    for replica in world.supervisor.replicas:
        replica.expected_to_end = True
        replica.send(signal.SIGKILL)
    stack.rabbitmq.kill()
    stack.postgres.kill()
    time.sleep(1)
    stack.postgres.start()
    stack.rabbitmq.start()


class Shop:
    """Publish and consume delayed messages. Each one carries its earliest time."""

    def __init__(self, amqp_url: str) -> None:
        self._url = amqp_url
        self.due: dict[int, float] = {}
        self.received: Counter[int] = Counter()
        self.early = 0
        connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(QUEUE, "schedule.delayed", QUEUE)
        connection.close()

    def publish(self, count: int) -> None:
        """Publish `count` messages and wait for their confirms."""
        link = Link(self._url, "chaos")
        publisher = Publisher(link)
        for start in range(0, count, AT_ONCE):
            batch = [self._message(number, count) for number in range(start, min(start + AT_ONCE, count))]
            receipts = publisher.send(batch).wait(120)
            if receipts.count(Receipt.CONFIRMED) != len(batch):
                raise RabbitUnavailable("a delayed message was not confirmed, though nothing was broken yet")
        link.close()

    def _message(self, number: int, count: int) -> AmqpMessage:
        delay = FIRST + SPREAD * number / count
        # The database runs on the same clock. The message is stored after now and emitted later than that.
        self.due[number] = time.time() + delay
        properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": int(delay * 1000)})
        return AmqpMessage("schedule.delay", QUEUE, json.dumps([number, "x" * 200]).encode(), properties)

    def take(self, amqp_url: str) -> bool:
        """Consume available messages and return whether all have arrived."""
        gone = threading.Event()
        try:
            connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
            channel = connection.channel()
            channel.basic_qos(prefetch_count=2000)
            channel.add_on_cancel_callback(lambda _: gone.set())
            for method, _, body in channel.consume(QUEUE, inactivity_timeout=2.0):
                if method is None:
                    break
                self._record(body)
                channel.basic_ack(method.delivery_tag)
            connection.close()
        except pika.exceptions.AMQPError:
            pass  # the broker is not back yet
        return len(self.received) == len(self.due)

    def _record(self, body: Any) -> None:
        number = json.loads(body)[0]
        self.received[number] += 1
        self.early += time.time() < self.due[number] - 0.001  # a header has whole milliseconds

    def account(self, result: Result) -> None:
        """Add the outcome to the fault's row."""
        result.expected += len(self.due)
        result.received += len(self.received)
        result.lost += len(self.due) - len(self.received)
        result.early += self.early
        twice = sum(self.received.values()) - len(self.received)
        result.duplicates += twice
        result.notes.append(f"{len(self.due) - len(self.received)} of them lost, {self.early} early, {twice} duplicates")
