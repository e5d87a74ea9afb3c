"""A tenant's reply address cannot delay, dead-letter or disconnect the commands of other tenants."""

import base64
import struct
from uuid import uuid4

import pytest
from support import until

LATER = "2099-01-01T00:00:00Z"
DIRECT = "amq.rabbitmq.reply-to"
KEY = base64.b64encode(bytes(16)).decode()


def pid(node: bytes, tail: bytes = bytes(12)) -> str:
    return base64.b64encode(b"\x83X" + b"v" + struct.pack(">H", len(node)) + node + tail).decode()


CRAFTED = [
    f"{DIRECT}.g2QAA2Zvbw==.k1",  # an atom instead of a process identifier: RabbitMQ 3 closes the connection
    f"{DIRECT}.{pid(b'reply@1')}.k1",
    f"{DIRECT}.{pid(b'reply@x')}.{KEY}",
    f"{DIRECT}.{pid(b'reply@1', bytes(11))}.{KEY}",
    f"{DIRECT}.{pid(b'rabbit@host')}.{KEY}",
    f"{DIRECT}.{pid(b'reply@1')}",
    f"{DIRECT}.....",
    f"{DIRECT}.!.{KEY}",
    f"{DIRECT}.",
]


def request(host, reply_to: str, **fields: object) -> str:
    job = str(uuid4())
    host.publish("request", {"id": job, "job_type": "a", "run_at": LATER} | fields, reply_to=reply_to,
                 correlation_id=job)
    return job


def disconnects(process) -> list[dict]:
    return [line for line in process.lines if line["event"].startswith("RabbitMQ unavailable")]


@pytest.mark.parametrize("queue", ["scheduler_inbox", "scheduler_results"])
def test_a_crafted_direct_reply_address_disconnects_no_consumer(sidecar, host, queue):
    good = [request(host, "") for _ in range(10)]
    for address in CRAFTED:
        if queue == "scheduler_inbox":
            good.append(request(host, address))
            request(host, address, tenant="not a tenant")
        else:
            host.publish("result", {"event_id": str(uuid4()), "attempt": 1, "status": "running"}, reply_to=address)
            host.publish("result", {"event_id": "no event"}, reply_to=address)
    good += [request(host, "") for _ in range(10)]
    consumer = sidecar.start("consumer").ready()
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    last = request(host, replies)
    host.publish("result", {"event_id": str(uuid4()), "attempt": 1, "status": "running"}, reply_to=replies)
    for _ in range(2):
        host.get(replies)
    for job in [*good, last]:
        sidecar.stored(job)
    until(lambda: host.channel.queue_declare(queue, passive=True).method.message_count == 0, "all acknowledged")
    dead = host.drain("scheduler_dead")
    assert len(dead) == len(CRAFTED)
    assert disconnects(consumer) == []
    assert consumer.metric("scheduler_replies_dropped_total") == 2 * len(CRAFTED)
