"""Plain implementations of the same work, as separate processes: `python -m bench.yardsticks NAME N`."""

import json
import os
import sys
import time
from collections.abc import Callable
from uuid import uuid4

import pika
import psycopg2
from pika.adapters.select_connection import SelectConnection

from bench.servers import PAYLOAD
from scheduler.rabbit.frames import DueMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher

BODY = json.dumps({
    "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "bench.job", "payload": PAYLOAD,
    "due_at": "2026-12-01T08:00:00.000000Z", "emitted_at": "2026-12-01T08:00:00.004112Z", "occurrence": 1,
    "missed": 0, "next_run_at": None,
}).encode()


def _properties() -> pika.BasicProperties:
    return pika.BasicProperties(
        content_type="application/json", delivery_mode=2, type="ScheduleDue", app_id="scheduler",
        message_id=str(uuid4()), timestamp=int(time.time()),
    )


def plain_loop(count: int) -> float:
    """Claim 500, publish one by one with a blocking confirm, update row by row, commit."""
    database = psycopg2.connect(os.environ["DATABASE_URL"])
    channel = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])).channel()
    channel.confirm_delivery()
    started, done = time.monotonic(), 0
    while done < count:
        with database, database.cursor() as cursor:
            cursor.execute("SELECT id, job_type, payload FROM jobs WHERE status = 'pending' AND wake_at <= now() "
                           "ORDER BY wake_at LIMIT 500 FOR UPDATE SKIP LOCKED")
            for job_id, job_type, payload in cursor.fetchall():
                body = json.dumps({"event_id": str(uuid4()), "job_id": job_id, "job_type": job_type,
                                   "payload": payload, "due_at": "", "emitted_at": "", "occurrence": 1,
                                   "missed": 0, "next_run_at": None})
                channel.basic_publish("schedule.events", "due", body, _properties(), mandatory=True)
                cursor.execute("UPDATE jobs SET status = 'done', finished_at = now() WHERE id = %s", (job_id,))
                done += 1
    return time.monotonic() - started


def pipelined_publisher(count: int, window: int = int(os.environ.get("WINDOW", "1000"))) -> float:
    """Publish with pika's pipelined confirms, with enough in flight to keep the broker busy; no database."""
    exchange, key = os.environ.get("EXCHANGE", "schedule.events"), os.environ.get("ROUTING_KEY", "due")
    state = {"sent": 0, "confirmed": 0, "started": 0.0, "ended": 0.0}
    holder: dict[str, pika.channel.Channel] = {}

    def send() -> None:
        for _ in range(min(window // 2, count - int(state["sent"]))):
            holder["channel"].basic_publish(exchange, key, BODY, _properties(), mandatory=True)
            state["sent"] += 1

    def confirmed(frame: pika.frame.Method) -> None:
        tag = frame.method.delivery_tag
        state["confirmed"] = tag if frame.method.multiple else state["confirmed"] + 1
        if state["confirmed"] >= count:
            state["ended"] = time.monotonic()
            connection.close()
        elif state["sent"] - state["confirmed"] <= window // 2:
            send()

    def opened(channel: pika.channel.Channel) -> None:
        holder["channel"] = channel
        channel.confirm_delivery(confirmed, callback=lambda _: begin())

    def begin() -> None:
        state["started"] = time.monotonic()
        send()
        send()

    connection = SelectConnection(
        pika.URLParameters(os.environ["AMQP_URL"]),
        on_open_callback=lambda c: c.channel(on_open_callback=opened),
        on_close_callback=lambda c, _: c.ioloop.stop(),
    )
    connection.ioloop.start()
    return state["ended"] - state["started"]


def framed_publisher(count: int, batch: int = 500) -> float:
    """Publish over pika's connection with our own frames, two batches in flight; no database."""
    link = Link(os.environ["AMQP_URL"], "bench")
    publisher, before = Publisher(link), None
    started = time.monotonic()
    for start in range(0, count, batch):
        now = int(time.time())
        sent = publisher.send([DueMessage(BODY, str(uuid4()), now) for _ in range(min(batch, count - start))])
        if before is not None:
            before.wait(60)
        before = sent
    if before is not None:
        before.wait(60)
    elapsed = time.monotonic() - started
    link.close()
    return elapsed


def plain_consumer(count: int) -> float:
    """Read, store, commit and acknowledge commands one by one."""
    database = psycopg2.connect(os.environ["DATABASE_URL"])
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    started = time.monotonic()
    for done, (method, _, body) in enumerate(channel.consume("scheduler_inbox"), 1):
        command = json.loads(body)
        with database, database.cursor() as cursor:
            cursor.execute(
                "INSERT INTO jobs (id, job_type, payload, next_run_at, starts_at) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (id) DO UPDATE SET job_type = excluded.job_type, payload = excluded.payload, "
                "next_run_at = excluded.next_run_at, starts_at = excluded.starts_at",
                (command["id"], command["job_type"], json.dumps(command["payload"]), command["run_at"],
                 command["run_at"]),
            )
        channel.basic_ack(method.delivery_tag)
        if done == count:
            break
    elapsed = time.monotonic() - started
    channel.cancel()
    connection.close()
    return elapsed


def bare_consumer(count: int, batch: int = 500) -> float:
    """Acknowledge the commands in batches with pika's callback connection, and store nothing."""
    state = {"got": 0, "started": 0.0, "ended": 0.0}

    def message(channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, *_: object) -> None:
        state["got"] += 1
        if state["got"] % batch == 0 or state["got"] >= count:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if state["got"] >= count:
            state["ended"] = time.monotonic()
            connection.close()

    def opened(channel: pika.channel.Channel) -> None:
        channel.basic_qos(prefetch_count=2 * batch)
        state["started"] = time.monotonic()
        channel.basic_consume("scheduler_inbox", message)

    connection = SelectConnection(
        pika.URLParameters(os.environ["AMQP_URL"]),
        on_open_callback=lambda c: c.channel(on_open_callback=opened),
        on_close_callback=lambda c, _: c.ioloop.stop(),
    )
    connection.ioloop.start()
    return state["ended"] - state["started"]


YARDSTICKS: dict[str, Callable[[int], float]] = {
    yardstick.__name__: yardstick for yardstick in (plain_loop, pipelined_publisher, framed_publisher, plain_consumer, bare_consumer)
}

if __name__ == "__main__":
    print(YARDSTICKS[sys.argv[1]](int(sys.argv[2])))
