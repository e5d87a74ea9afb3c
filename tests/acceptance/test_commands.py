"""Every command is stored, answered or refused with a reason, and nothing that a host sent is lost."""

import json
import random
import signal
import struct
from contextlib import closing
from uuid import uuid4

import pika
import psycopg2
import pytest
from delayed_support import Raw, keeping_raw, raw_headers, short, table, text, value
from support import DEADLINE, iso, until, utc

from scheduler.rabbit.frames import AmqpMessage, encode
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher, Receipt

ID = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"
GOOD = {"id": ID, "job_type": "t", "run_at": "2099-01-01T00:00:00Z"}
BAD = [
    ("not JSON", "request", b"hello", "body"),
    ("empty body", "request", b"", "body"),
    ("not UTF-8", "request", b"\xff\xfe{}", "body"),
    ("not an object", "request", b"[1, 2]", "body"),
    ("NaN", "request", b'{"id": "%s", "job_type": "t", "payload": {"x": NaN}}' % ID.encode(), "body"),
    ("duplicate keys", "request", b'{"id": "x", "id": "y", "job_type": "t"}', "body"),
    ("deep nesting", "request", b'{"payload": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "body"),
    ("NUL", "request", json.dumps(GOOD | {"payload": {"x": "a\x00"}}).encode(), "payload.x"),
    ("lone surrogate", "request", b'{"id": "%s", "job_type": "\\ud800"}' % ID.encode(), "job_type"),
    ("unknown field", "request", GOOD | {"rule": "FREQ=DAILY"}, "rule"),
    ("wrong type", "request", GOOD | {"job_type": 5}, "job_type"),
    ("missing field", "request", {"id": ID, "run_at": "2099-01-01T00:00:00Z"}, "job_type"),
    ("no time at all", "request", {"id": ID, "job_type": "t"}, "run_at"),
    ("bad run_at", "request", GOOD | {"run_at": "tomorrow"}, "run_at"),
    ("no such date", "request", GOOD | {"run_at": "2027-02-30T00:00:00Z"}, "run_at"),
    ("year 0", "request", GOOD | {"run_at": "0000-01-01T00:00:00Z"}, "run_at"),
    ("beyond time", "request", GOOD | {"run_at": "9999-12-31T23:59:59-12:00"}, "run_at"),
    ("unknown zone", "request", GOOD | {"timezone": "Mars/Olympus"}, "timezone"),
    ("two recurrences", "request", GOOD | {"cron": "* * * * *", "rrule": "FREQ=DAILY"}, "cron"),
    ("impossible rule", "request", GOOD | {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "rrule"),
    ("hostile rule", "request", GOOD | {"rrule": "FREQ=SECONDLY;INTERVAL=0"}, "rrule"),
    ("bad cron", "request", GOOD | {"cron": "61 * * * *"}, "cron"),
    ("bad every", "request", GOOD | {"every": "P1M"}, "every"),
    ("large payload", "request", GOOD | {"payload": {"x": "y" * 300_000}}, "payload"),
    ("16 MB", "request", GOOD | {"payload": {"x": "y" * 16_000_000}}, "payload"),
    ("bad id", "cancel", {"id": "seven"}, "id"),
    ("cancel with a payload", "cancel", {"id": ID, "payload": {}}, "payload"),
    ("trigger without id", "trigger", {}, "id"),
]


NUMBER = 1_700_000_000_000
# Headers that other clients write and pika does not: a large fraction; a time in milliseconds, far beyond 9999.
DOUBLE, MILLISECONDS = b"d" + struct.pack(">d", 1e20), b"T" + struct.pack(">Q", NUMBER)


def publish_with(header, url, body):
    """Publish with a header whose value is written as these bytes."""
    properties = pika.BasicProperties(delivery_mode=2, headers={"at": NUMBER})
    link = Link(url, "test")
    number = link.channel().channel_number
    frames = encode(AmqpMessage("schedule.commands", "request", body, properties), number, 131_072)
    changed = frames.replace(b"l" + struct.pack(">q", NUMBER), header)
    assert changed != frames
    link.post(lambda: link.write([changed]))
    link.close()


def test_unreadable_properties_block_no_other_command(host, sidecar, amqp_url):
    rejected = host.listen("schedule.events", "rejected")
    publish_with(MILLISECONDS, amqp_url, json.dumps(GOOD).encode())  # the very first that the consumer gets
    sidecar.up(producers=0)
    first = host.request(run_at="2099-01-01T00:00:00Z")
    # pika reads it as a whole number, for which AMQP has no room; the other leaves none for the reason.
    publish_with(DOUBLE, amqp_url, b"not JSON")
    host.publish("request", b"no room", headers={"x": "y" * 131_000})
    publish_with(MILLISECONDS, amqp_url, json.dumps(GOOD).encode())
    publish_with(MILLISECONDS, amqp_url, json.dumps(GOOD | {"payload": {"x": "y" * 200_000}}).encode())
    last = host.request(run_at="2099-01-01T00:00:00Z")
    for job in (first, last):
        assert sidecar.stored(job)["status"] == "pending"
    errorss = [json.loads(host.get(rejected)[2])["errors"] for _ in range(5)]
    assert sorted(each[0]["field"] for each in errorss) == ["body", "body", "headers", "headers", "headers"]
    dead = {"queue": "scheduler_dead", "passive": True}
    until(lambda: host.channel.queue_declare(**dead).method.message_count == 5, "all five in scheduler_dead")
    with keeping_raw():
        found = [(body, raw_headers(properties.raw)) for _, properties, body in (
            host.get("scheduler_dead") for _ in range(5))]
    assert all("x-rejected-reason" in headers for _, headers in found)
    assert [body for body, headers in found if "x-dropped-headers" in headers] == [b"no room"]
    assert sorted(headers.get("at", b"") for _, headers in found) == [b"", *[MILLISECONDS] * 3, DOUBLE]
    assert host.drain("scheduler_inbox") == []
    assert not [line for line in sidecar.processes[0].lines if "unavailable" in line["event"]]


def test_a_rejected_command_keeps_header_types_and_properties(host, sidecar):
    sidecar.up(producers=0)
    headers = {"fraction": value("d", "d", 1.5), "small": value("b", "b", 7), "none": b"V",
               "text": text(b"\xff"), "table": b"F" + table(half=value("f", "f", 0.5)), "bytes": b"x\0\0\0\1\0"}
    flags = struct.pack(">H", 1 << 15 | 1 << 13 | 1 << 11 | 1 << 8 | 1 << 7 | 1 << 6)
    tail = b"\x03" + short(b"60000") + short(b"\xff") + struct.pack(">Q", 2**63)
    host.channel.basic_publish("schedule.commands", "cancel", b"{}", Raw(
        flags + short(b"a/b") + table(**headers) + tail))
    with keeping_raw():
        method, properties, body = host.get("scheduler_dead")
    found = raw_headers(properties.raw)
    assert b"id: " in found.pop("x-rejected-reason")
    assert found.pop("x-rejected-at")
    assert found.pop("x-original-expiration") == text(b"60000")
    found.pop("x-delivery-count", None)
    assert (method.routing_key, found, body) == ("cancel", headers, b"{}")
    assert properties.raw.endswith(b"\x02\x03" + short(b"\xff") + struct.pack(">Q", 2**63))


def test_invalid_commands_are_dead_lettered_with_a_reason(host, sidecar):
    rejected = host.listen("schedule.events", "rejected")
    sidecar.up(producers=0)
    first = host.request(run_at="2099-01-01T00:00:00Z")
    for name, key, body, _ in BAD:
        host.publish(key, body, message_id=name, headers={"host": name}, app_id="host", priority=3)
    host.publish("scheduler_inbox", GOOD, exchange="", message_id="unknown routing key", headers={"host": "r"})
    host.publish("request", GOOD, type="Nonsense", message_id="unknown type", headers={"host": "t"})
    last = host.request(run_at="2099-01-01T00:00:00Z")
    for job in (first, last):
        assert sidecar.stored(job)["status"] == "pending"
    sent = {name: (key, body if isinstance(body, bytes) else json.dumps(body).encode(), field)
            for name, key, body, field in BAD}
    sent["unknown routing key"] = ("scheduler_inbox", json.dumps(GOOD).encode(), "routing_key")
    sent["unknown type"] = ("request", json.dumps(GOOD).encode(), "type")
    for _ in range(len(sent)):
        method, properties, body = host.get("scheduler_dead")
        key, original, field = sent.pop(properties.message_id)
        assert (method.routing_key, body) == (key, original)
        assert f"{field}: " in properties.headers["x-rejected-reason"]
        assert properties.headers["x-rejected-at"]
        assert properties.headers["host"]
        event = json.loads(host.get(rejected)[2])
        assert field in [error["field"] for error in event["errors"]]
    assert sent == {}
    assert sidecar.sql("SELECT count(*) AS n FROM jobs")[0]["n"] == 2


def test_replies_have_the_outcome_of_a_command(host, sidecar):
    sidecar.up(producers=0)
    queue = host.channel.queue_declare("", exclusive=True).method.queue

    def ask(key, **body):
        host.publish(key, body, reply_to=queue, correlation_id=str(uuid4()))
        _, properties, raw = host.get(queue)
        return properties.type, json.loads(raw)

    job = str(uuid4())
    t = [iso(utc(seconds=n)) for n in range(9)]
    common = {"id": job, "job_type": "t", "run_at": "2099-01-01T00:00:00+02:00"}
    accepted = {"id": job, "next_run_at": "2098-12-31T22:00:00.000000Z"}
    assert ask("request", **common, issued_at=t[2]) == ("ScheduleAccepted", accepted | {"status": "scheduled"})
    assert ask("request", **common, issued_at=t[2])[1] == accepted | {"status": "unchanged"}
    assert ask("request", **common, issued_at=t[1])[1] == accepted | {"status": "superseded"}
    assert ask("cancel", id=job, issued_at=t[3])[1] == {"id": job, "status": "cancelled", "next_run_at": None}
    kind, body = ask("request", id=job, job_type="", every="P1Y")
    assert kind == "ScheduleRejected"
    assert (body["id"], {error["field"] for error in body["errors"]}) == (job, {"job_type"})


def test_a_far_future_issued_at_does_not_block_a_job(host, sidecar):
    sidecar.up(producers=0)
    queue = host.channel.queue_declare("", exclusive=True).method.queue

    def ask(key, **body):
        host.publish(key, body, reply_to=queue, correlation_id=str(uuid4()))
        return json.loads(host.get(queue)[2])

    job = {"id": str(uuid4())}
    request = job | {"job_type": "t", "run_at": "2099-01-01T00:00:00Z"}
    for key, body in (("request", request), ("cancel", job), ("pause", job), ("resume", job), ("trigger", job)):
        for issued_at in ("2090-01-01T00:00:00Z", iso(utc(days=1, minutes=10))):
            errors = ask(key, **body, issued_at=issued_at)["errors"]
            assert [error["field"] for error in errors] == ["issued_at"]
    assert ask("request", **request, issued_at=iso(utc(hours=23)))["status"] == "scheduled"
    assert ask("cancel", **job, issued_at=iso(utc(hours=23, minutes=1)))["status"] == "cancelled"
    job = {"id": str(uuid4())}
    request |= job
    assert ask("request", **request)["status"] == "scheduled"
    sidecar.sql("UPDATE jobs SET requested_at = '2090-01-01', triggered_at = '2091-01-01'")  # by release 0.2
    assert ask("trigger", **job)["status"] == "scheduled"
    assert ask("cancel", **job, issued_at=iso(utc()))["status"] == "cancelled"


def test_a_deleted_reply_queue_is_harmless(host, sidecar):
    sidecar.up(producers=0)
    for reply_to in ("no.such.queue", "amq.rabbitmq.reply-to.g1gCYQ.gone"):
        job = str(uuid4())
        host.publish("request", GOOD | {"id": job}, reply_to=reply_to)
        sidecar.stored(job)


def test_commands_that_were_only_redelivered_are_stored(host, sidecar):
    """Another message, or a restart of the broker, may have ended the consumers that held them."""
    jobs = [host.request(run_at=f"2099-01-01T00:00:{second:02}Z") for second in range(20)]
    for _ in range(19):
        tags = [host.channel.basic_get("scheduler_inbox")[0].delivery_tag for _ in jobs]
        host.channel.basic_nack(tags[-1], multiple=True, requeue=True)
    jobs.append(host.request(run_at="2099-01-01T00:01:00Z"))
    sidecar.up(producers=0)
    for job in jobs:
        sidecar.stored(job)
    until(lambda: not sidecar.sql("SELECT 1 FROM redeliveries"), "the counts to be forgotten")
    assert host.drain("scheduler_dead") == []


def test_a_command_that_crashes_every_consumer_is_dead_lettered(host, sidecar):
    """Consumers are killed while they handle it; the others are stored."""
    poison = str(uuid4())
    sidecar.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (%s, 't', '2099-01-01')", poison)
    host.publish("cancel", {"id": poison})
    for _ in range(10):
        host.channel.basic_nack(host.channel.basic_get("scheduler_inbox")[0].delivery_tag, requeue=True)
    good = host.request(run_at="2099-01-01T00:00:00Z")
    waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with closing(psycopg2.connect(sidecar.database_url)) as holder:
        holder.cursor().execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (poison,))
        for alone in (1, 2):
            consumer = sidecar.start("consumer")
            until(lambda: sidecar.sql(f"SELECT pid {waiting}"), "the consumer to handle it")
            assert [row["count"] for row in sidecar.sql("SELECT count FROM redeliveries")] == [alone]
            consumer.popen.send_signal(signal.SIGKILL)
            consumer.ended()
            sidecar.sql(f"SELECT pg_terminate_backend(pid) {waiting}")
        sidecar.sql("UPDATE redeliveries SET count = 5")
        sidecar.start("consumer").ready()
        sidecar.stored(good)
        _, properties, body = host.get("scheduler_dead")
    assert json.loads(body)["id"] == poison
    assert "even alone" in properties.headers["x-rejected-reason"]
    until(lambda: not sidecar.sql("SELECT 1 FROM redeliveries"), "the count to be forgotten")


def test_kill_minus_9_of_the_consumer_twenty_times_under_load_loses_no_command(host, sidecar):
    chance = random.Random(20)
    jobs = []
    process = sidecar.start("consumer").ready()
    for _ in range(20):
        jobs += [host.request(run_at="2099-01-01T00:00:00Z") for _ in range(chance.randint(20, 120))]
        process.popen.send_signal(signal.SIGKILL)
        process.kill()
        process = sidecar.start("consumer")
        if chance.random() < 0.5:
            process.ready()
    until(lambda: sidecar.sql("SELECT count(*) AS n FROM jobs")[0]["n"] == len(jobs), "every command stored",
          2 * DEADLINE)
    assert host.drain("scheduler_dead") == []


def test_two_consumers_share_the_work(host, sidecar):
    sidecar.up(consumers=2, producers=0)
    jobs = [host.request(run_at="2099-01-01T00:00:00Z") for _ in range(400)]
    until(lambda: sidecar.sql("SELECT count(*) AS n FROM jobs")[0]["n"] == len(jobs), "every command stored")

    def counted():
        return sum(process.metric("jobs_queued_total") for process in sidecar.processes)

    until(lambda: counted() >= len(jobs), "each counted, which it is a moment after it is stored")
    assert counted() == len(jobs)


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_sigterm_exits_0_and_a_second_signal_at_once(sidecar, role):
    def stopped():
        process = sidecar.start(role).ready()
        assert process.stop(signal.SIGTERM) == 0
        return process.orderly

    until(stopped, "an orderly end: with slow servers after at most 4.5 seconds")
    assert sidecar.start(role).ready().stop(signal.SIGINT) == 0


def test_commands_without_issued_at_apply_in_queue_order(host, sidecar):
    """Two batches are stored at a time; about the same job they must not overtake each other."""
    chance = random.Random(3)
    ids = [str(uuid4()) for _ in range(700)]
    # Long stretches about different jobs, which go side by side, and others about few.
    steps = [
        (chance.choice(["request", "cancel"]), choice)
        for few in (700, 3, 700, 700, 40, 700)
        for choice in chance.choices(ids[:few], k=600)
    ]
    last = {each: kind for kind, each in steps}
    link = Link(sidecar.amqp_url, "test")
    try:
        sent = Publisher(link).send([
            AmqpMessage("schedule.commands", kind, json.dumps(
                GOOD | {"id": each} if kind == "request" else {"id": each}
            ).encode(), pika.BasicProperties(delivery_mode=2))
            for kind, each in steps
        ])
        assert set(sent.wait(DEADLINE)) == {Receipt.CONFIRMED}
    finally:
        link.close()
    sidecar.start("consumer").ready()
    marker = host.request(run_at="2099-01-01T00:00:00Z")  # which no batch overtakes by more than one
    until(lambda: sidecar.job(marker), "every command stored, or being stored", 2 * DEADLINE)
    wanted = {each: "pending" if kind == "request" else "cancelled" for each, kind in last.items()}

    def stored():
        found = sidecar.sql("SELECT id::text, status::text FROM jobs WHERE id <> %s", marker)
        return {each["id"]: each["status"] for each in found}

    until(lambda: stored() == wanted, "the last of each job's commands counts")
    assert sidecar.processes[0].stop() == 0
    assert host.drain("scheduler_inbox") == []
    assert stored() == wanted
