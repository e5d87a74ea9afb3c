"""Fault 20: everything dies while a great many delayed messages wait."""

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
from scheduler.rabbit.link import BrokerUnavailable, Link
from scheduler.rabbit.publisher import Publisher, Receipt

MANY = 100_000
QUEUE = "chaos_delayed"
FIRST, SPREAD = 25.0, 20.0  # seconds: when the first comes out, and over how long they are spread
AT_ONCE = 1000


@fault("delayed", "everything killed and started again while delayed messages wait")
def delayed(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        shop = Shop(world.amqp_url)
        shop.publish(max(1000, int(MANY * scale)))
        result.notes.append(f"{len(shop.due):,} delayed messages")
        # Some are still in the broker's queue, some in the middle of being stored, most wait in the table.
        kill_everything(stack, world)
        wait_for(lambda: shop.take(world.amqp_url), "every delayed message", FIRST + SPREAD + 240)
        world.settle(result, within=120)
        shop.account(result)
    finally:
        world.close(result)


def kill_everything(stack: Stack, world: World) -> None:
    """Kill -9 every process of ours and both servers, at once, and start them again."""
    for each in world.supervisor.replicas:
        each.expected_to_end = True
        each.send(signal.SIGKILL)
    stack.rabbitmq.kill()
    stack.postgres.kill()
    time.sleep(1)
    stack.postgres.start()
    stack.rabbitmq.start()


class Shop:
    """Publishes delayed messages and takes them: each says for itself before when it must not come."""

    def __init__(self, amqp_url: str) -> None:
        self._url = amqp_url
        self.due: dict[int, float] = {}
        self.came: Counter[int] = Counter()
        self.early = 0
        connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(QUEUE, "schedule.delayed", QUEUE)
        connection.close()

    def publish(self, count: int) -> None:
        """Publish so many, each confirmed."""
        link = Link(self._url, "chaos")
        publisher = Publisher(link)
        for start in range(0, count, AT_ONCE):
            batch = [self._message(number, count) for number in range(start, min(start + AT_ONCE, count))]
            receipts = publisher.send(batch).wait(120)
            if receipts.count(Receipt.CONFIRMED) != len(batch):
                raise BrokerUnavailable("a delayed message was not confirmed, though nothing was broken yet")
        link.close()

    def _message(self, number: int, count: int) -> AmqpMessage:
        delay = FIRST + SPREAD * number / count
        # By its own clock, which is the database's too: it is stored later than now, and comes out later than that.
        self.due[number] = time.time() + delay
        properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": int(delay * 1000)})
        return AmqpMessage("schedule.delay", QUEUE, json.dumps([number, "x" * 200]).encode(), properties)

    def take(self, amqp_url: str) -> bool:
        """Take what is there, and tell whether all have come."""
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
            pass  # it is not back yet
        return len(self.came) == len(self.due)

    def _record(self, body: Any) -> None:
        number = json.loads(body)[0]
        self.came[number] += 1
        self.early += time.time() < self.due[number] - 0.001  # a header has whole milliseconds

    def account(self, result: Result) -> None:
        """Add what became of them to the line of the table."""
        result.expected += len(self.due)
        result.received += len(self.came)
        result.lost += len(self.due) - len(self.came)
        result.early += self.early
        twice = sum(self.came.values()) - len(self.came)
        result.duplicates += twice
        result.notes.append(f"{len(self.due) - len(self.came)} of them lost, {self.early} early, {twice} twice")
