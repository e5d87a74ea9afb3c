"""Reading scheduler_dead is bounded regardless of its contents, and keeps the order of messages."""

import tracemalloc

import pika
import pytest
from support import until

from scheduler.rabbit import topology
from scheduler.rabbit.dead_letter_queue import PAGE_BYTES, SHOWN_BYTES, DeadLetterQueue
from scheduler.rabbit.dead_letter_reader import MAX_BYTES
from scheduler.views.dead_letters import dead_view

LARGE = 1_300_000  # about the longest body of a rejected command, if tenants are strangers
NUMBER = MAX_BYTES // LARGE + 15


@pytest.fixture(params=["quorum", "classic"])
def channel(request, vhost):
    topology.declare(vhost, queue_type=request.param, due_queue_type="default")
    connection = pika.BlockingConnection(pika.URLParameters(vhost))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def letters(channel, vhost):  # noqa: ARG001 - the queue must be there
    queue = DeadLetterQueue([vhost])
    yield queue
    queue.close()


def lay(channel, sizes, **headers):
    """Publish rejected commands, each a second younger than the previous one."""
    for number, size in enumerate(sizes):
        at = f"2026-11-18T00:{number // 60 % 60:02}:{number % 60:02}Z"
        properties = pika.BasicProperties(headers={"x-rejected-reason": "a", "x-rejected-at": at, **headers})
        channel.basic_publish("schedule.dead", "request", f"{number:06}".encode() + b"x" * size, properties)


def order(channel, count):
    def waiting():
        return channel.queue_declare("scheduler_dead", passive=True).method.message_count == count

    until(waiting, "all are given back")
    bodies = [channel.basic_get("scheduler_dead", auto_ack=True)[2] for _ in range(count)]
    return [int(body[:6]) for body in bodies]


def test_large_messages_are_read_up_to_a_limit_one_at_a_time(channel, letters):
    lay(channel, [LARGE] * NUMBER)
    tracemalloc.start()
    try:
        first = letters.page(20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * PAGE_BYTES + 4 * LARGE  # the shown page, and a body with its parts
    assert first.incomplete.startswith("only the first ")
    assert first.more
    assert len(first.letters) == 20
    assert [letter.body[:6] for letter in first.letters] == [f"{i:06}".encode() for i in range(len(first.letters))]
    assert {letter.size for letter in first.letters} == {LARGE + 6}
    assert len(dead_view(first.letters[0]).body) == SHOWN_BYTES
    after = letters.page(200, first.letters[-1].position)
    assert after.letters[0].body[:6] == f"{len(first.letters):06}".encode()
    assert letters.drop(first.letters[0].id)
    assert order(channel, NUMBER - 1) == list(range(1, NUMBER))


def test_all_keep_their_order_however_much_was_read(channel, letters):
    sizes = [100] * 300 + [LARGE, 100] * 10 + [100] * 30
    lay(channel, sizes)
    first = letters.page(50)
    assert (first.incomplete, first.more, len(first.letters)) == (None, True, 50)
    assert letters.find(first.letters[20].id).body == b"000020" + b"x" * 100
    page = first
    while page.more:
        page = letters.page(50, page.letters[-1].position)
    large = next(letter for letter in page.letters if letter.size > LARGE)
    assert len(letters.find(large.id).body) == large.size
    assert letters.drop(first.letters[9].id)
    assert order(channel, len(sizes) - 1) == [number for number in range(len(sizes)) if number != 9]
