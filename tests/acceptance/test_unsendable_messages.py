"""No command and no stored row can break the connection to the broker, or stop the others."""

import json
from uuid import uuid4

import pika
import psycopg2
import pytest
from support import connected, iso, until, utc

from scheduler.client import BrokerUnavailable, Outbox, Relay, SchedulerClient, tables
from scheduler.dev.servers.vhosts import name_of

GIANT = "00-" + "a" * 130_977  # with an event's other properties it exceeds a frame of 131,072 bytes
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def store_job(sidecar, **columns):
    """Write a row by hand, or like an earlier release."""
    columns = {"id": str(uuid4()), "job_type": "test.job", "next_run_at": utc()} | columns
    names, holders = ", ".join(columns), ", ".join(["%s"] * len(columns))
    with connected(sidecar.database_url) as connection:
        connection.cursor().execute(f"INSERT INTO jobs ({names}) VALUES ({holders})", list(columns.values()))
    return columns["id"]


def due_of(host, *jobs):
    """Take events until each of these jobs has had one, and return those by job with their headers."""
    found = {}
    while set(jobs) - set(found):
        _, properties, body = host.get("mainapp_due")
        found[json.loads(body)["job_id"]] = properties.headers or {}
    return found


@pytest.fixture
def max_message_size(stack):
    """Make new channels reject messages above 100 kB."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    stack.rabbitmq.evaluate("application:set_env(rabbit, max_message_size, 100000)")
    yield 100_000
    stack.rabbitmq.evaluate("application:unset_env(rabbit, max_message_size)")


def test_a_giant_traceparent_is_ignored_and_the_job_runs(sidecar, host):
    sidecar.up()
    job = str(uuid4())
    host.publish("request", {"id": job, "job_type": "test.job", "run_at": iso(utc())},
                 headers={"traceparent": GIANT[:130_000], "tracestate": "a=1"})
    other = host.request(run_at=iso(utc()))
    assert due_of(host, job, other)[job] == {}
    assert sidecar.job(job)["traceparent"] is None


def test_rows_with_a_giant_trace_context_are_emitted_without_it(sidecar, host):
    jobs = [store_job(sidecar, traceparent=GIANT, tracestate="vendor=1"), store_job(sidecar, traceparent=PARENT),
            store_job(sidecar, traceparent=PARENT, tracestate=GIANT)]
    tracked = store_job(sidecar, traceparent=GIANT, run='{"max_attempts": 1}')
    producer = sidecar.start("producer").ready()
    found = due_of(host, *jobs, tracked)
    assert [found[job] for job in jobs] == [{"tracestate": "vendor=1"}, {"traceparent": PARENT},
                                            {"traceparent": PARENT}]
    assert found[tracked] == {}
    assert not any("RabbitMQ unavailable" in line.get("event", "") for line in producer.lines)


def test_an_unencodable_row_is_retried_and_blocks_no_other(sidecar, host):
    bad = store_job(sidecar, correlation_id="x" * 300)
    good = [store_job(sidecar) for _ in range(3)]
    producer = sidecar.start("producer").ready()
    due_of(host, *good)
    until(lambda: sidecar.job(bad)["retries"], "the postponed row")
    assert sidecar.job(bad)["last_problem"].startswith("unsendable")
    line = producer.logged("events not delivered")
    assert (line["reason"], line["job_ids"]) == ("unsendable", [bad])
    sidecar.sql("UPDATE jobs SET correlation_id = 'short', retry_at = NULL WHERE id = %s", bad)
    sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
    due_of(host, bad)


def test_a_rejected_command_whose_headers_leave_no_room_is_dead_lettered_with_its_reason(sidecar, host):
    consumer = sidecar.start("consumer").ready()
    body = b'{"id": 7}'
    host.publish("request", body, headers={"large": "x" * 130_900, "small": "kept"}, correlation_id="c-1",
                 app_id="shop")
    _, properties, dead = host.get("scheduler_dead")
    assert (dead, properties.correlation_id, properties.app_id) == (body, "c-1", "shop")
    assert properties.headers["x-rejected-reason"].startswith("id:")
    assert properties.headers["small"] == "kept"
    assert "large (130,911 bytes)" in properties.headers["x-dropped-headers"]
    assert "large" not in properties.headers
    good = host.request(run_at=iso(utc(days=1)))
    sidecar.stored(good)
    assert not any("RabbitMQ unavailable" in line.get("event", "") for line in consumer.lines)


def test_a_message_above_max_message_size_is_isolated(max_message_size, sidecar, host):
    """RabbitMQ closes the channel over it, and everything in flight is resent."""
    large = store_job(sidecar, payload=json.dumps({"text": "x" * max_message_size}))
    good = [store_job(sidecar) for _ in range(5)]
    delayed = b"y" * (max_message_size + 1)
    with connected(sidecar.database_url) as connection:
        connection.cursor().execute(
            "INSERT INTO delayed_messages (exchange, routing_key, properties, body, due_at, wake_at) "
            "VALUES ('schedule.delayed', 'any', %s, %s, now(), now())", (b"\x00\x00", delayed))
    producer = sidecar.start("producer").ready()
    due_of(host, *good)
    until(lambda: sidecar.job(large)["retries"], "the postponed large event")
    assert sidecar.job(large)["last_problem"].startswith("unsendable")
    [row] = until(lambda: sidecar.sql("SELECT * FROM delayed_messages WHERE retries > 0"), "the postponed message")
    assert row["problem"].startswith("unsendable")
    later = [store_job(sidecar) for _ in range(3)]
    sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
    due_of(host, *later)
    until(lambda: sidecar.job(large)["retries"] > 1, "another attempt of the large event")
    lost = [line for line in producer.lines if line["event"].startswith("RabbitMQ unavailable")]
    assert len(lost) <= 1, lost


def test_a_message_without_permission_is_isolated(stack, sidecar, host, amqp_url):
    """Any other reason to close a channel over a message: here a topic permission of the sidecar's user."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    vhost = name_of(amqp_url)
    set_permission = (f'rabbit_auth_backend_internal:set_topic_permissions(<<"{stack.rabbitmq.user}">>, '
                      f'<<"{vhost}">>, <<"schedule.events">>, <<"^(?!due\\\\.secret).*$">>, <<".*">>, <<"test">>)')
    host.channel.queue_bind("mainapp_due", "schedule.events", "due.#")
    stack.rabbitmq.evaluate(set_permission)
    bad = store_job(sidecar, route="secret")
    good = [store_job(sidecar) for _ in range(20)]
    sidecar.start("producer").ready()
    due_of(host, *good)
    until(lambda: sidecar.job(bad)["retries"], "the postponed event")
    later = store_job(sidecar)
    sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
    due_of(host, later)


def test_the_client_refuses_headers_that_exceed_a_frame(amqp_url, sidecar):
    sidecar.start("consumer").ready()
    with SchedulerClient(amqp_url) as client:
        with pytest.raises(BrokerUnavailable, match="need a frame of"):
            client.schedule(uuid4(), "test.job", run_at=utc(days=1), headers={"a": "x" * 140_000})
        client.schedule(uuid4(), "test.job", run_at=utc(days=1), headers={"a": "x"})


def test_an_outbox_row_with_giant_headers_is_postponed(database_url, sidecar, amqp_url):
    sidecar.start("consumer").ready()
    bad, good = uuid4(), uuid4()
    with connected(database_url) as connection:
        connection.cursor().execute(tables())
        connection.autocommit = False
        outbox = Outbox(connection)
        outbox.schedule(bad, "test.job", run_at=utc(days=1), headers={"a": "x" * 140_000})
        outbox.schedule(good, "test.job", run_at=utc(days=1))
        connection.commit()
    relay = Relay(lambda: psycopg2.connect(database_url), amqp_url)
    try:
        assert relay.run_once() == 1
    finally:
        relay.close()
    sidecar.stored(str(good))
    [row] = sidecar.sql("SELECT * FROM scheduler_outbox")
    assert "need a frame of" in row["last_error"]


def test_replies_and_events_of_a_command_are_bounded_by_amqp_itself(sidecar, host):
    """reply_to and correlation_id are short strings: 255 bytes at most."""
    sidecar.start("consumer").ready()
    name = host.channel.queue_declare("r" * 255, exclusive=True).method.queue
    host.publish("request", {"id": 7}, reply_to=name, correlation_id="ö" * 127)
    _, properties, _ = host.get(name)
    assert properties.correlation_id == "ö" * 127
    assert isinstance(properties, pika.BasicProperties)


def test_a_full_dead_letter_queue_delays_only_the_rejected_commands(stack, sidecar, host, amqp_url):
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    vhost = name_of(amqp_url)
    limit = json.dumps({"max-length": 1, "overflow": "reject-publish"})
    stack.rabbitmq.ctl("set_policy", "-p", vhost, "full", "^scheduler_dead$", limit, "--apply-to", "queues")
    consumer = sidecar.start("consumer").ready()
    bodies = [b"{no JSON %d" % number for number in range(20)]
    for body in bodies:
        host.publish("request", body)
    consumer.logged("rejected commands wait: the dead-letter queue does not accept them")
    stored = [host.request(run_at=iso(utc(days=1))) for _ in range(3)]
    for job_id in stored:
        sidecar.stored(job_id)
    assert not [line for line in consumer.lines if line["event"].startswith("RabbitMQ unavailable")]
    stack.rabbitmq.ctl("clear_policy", "-p", vhost, "full")
    letters = [host.get("scheduler_dead")[2] for _ in bodies]
    assert sorted(letters) == sorted(bodies)
    assert consumer.stop() == 0
    assert (host.drain("scheduler_inbox"), host.drain("scheduler_dead")) == ([], [])
