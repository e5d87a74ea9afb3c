"""No attempt is ended for silence while its reports wait unread: after outages, freezes and backlogs."""

import json
import signal
from contextlib import closing

import pytest
from support import DEADLINE, Sidecar, iso, until, utc

from chaos.proxy import Proxy
from scheduler.rabbit.frames import command_message
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher, Receipt

HOUR = 3600


@pytest.fixture
def up(sidecar):
    return sidecar.up()


def tracked(host, **fields):
    return host.request(**{"run_at": iso(utc()), "run": {"delay": 0, "max_attempts": 3}} | fields)


def report(host, event, status, **fields):
    attempt = {"event_id": event["event_id"], "attempt": event["run"]["attempt"], "worker": "w"}
    host.publish("result", attempt | {"status": status} | fields)


def begun(up, host, heartbeat=HOUR):
    """Emit an event and have a worker begin it."""
    tracked(host)
    [event] = host.due()
    report(host, event, "running", heartbeat=heartbeat)
    until(lambda: run_of(up, event)["status"] == "running", "it is running")
    return event


def expire(up, *events):
    """Make the next report of these attempts overdue."""
    for event in events:
        up.sql("UPDATE runs SET (alive_until, wake_at) = (now(), now()) WHERE event_id = %s", event["event_id"])


def run_of(up, event):
    rows = up.sql("SELECT *, least(deadline, alive_until) < now() AS expired, wake_at > alive_until AS postponed "
                  "FROM runs WHERE event_id = %s", event["event_id"])
    return rows[0] if rows else {"status": None}


def looked_at(up, event):
    """Wait until a producer has looked at an attempt that has expired; say what it made of it."""
    def seen():
        run = run_of(up, event)
        return run["status"] != "running" or (run["expired"] and run["postponed"] and run)

    until(seen, "a producer looks at the expired attempt")
    return run_of(up, event)["status"]


def attempts(up, event):
    """Wait until the run is in the history; return the outcome of each of its attempts."""
    def there():
        return up.sql("SELECT attempts FROM run_history WHERE event_id = %s", event["event_id"])

    [row] = until(there, "the run in the history")
    return [attempt["outcome"] for attempt in row["attempts"]]


def alive_for_long(up, event):
    run = run_of(up, event)
    assert run["status"] == "running"
    return run["alive_until"] > utc(minutes=30)


def finishes_first_attempt(up, host, event):
    report(host, event, "succeeded")
    assert attempts(up, event) == ["succeeded"]


def test_a_stalled_only_consumer_delays_expiry(up, host):
    consumer = up.processes[0].popen
    event = begun(up, host)
    consumer.send_signal(signal.SIGSTOP)
    report(host, event, "running", heartbeat=HOUR)
    expire(up, event)
    assert looked_at(up, event) == "running"
    consumer.send_signal(signal.SIGCONT)
    until(lambda: alive_for_long(up, event), "the report is read")
    finishes_first_attempt(up, host, event)


def test_a_stalled_consumer_with_delivered_results_delays_expiry(sidecar, host):
    """The broker drops it after some time; then the other one reads them."""
    sidecar.env["AMQP_URL"] += "?heartbeat=1"
    up = sidecar.up(consumers=2)
    first, second = (process.popen for process in up.processes[:2])
    events = [begun(up, host) for _ in range(2)]
    for each in (first, second):
        each.send_signal(signal.SIGSTOP)
    for event in events:  # the broker delivers to one and the other in turn
        report(host, event, "running", heartbeat=HOUR)
    expire(up, *events)
    assert [looked_at(up, event) for event in events] == ["running", "running"]
    first.send_signal(signal.SIGCONT)
    for event in events:
        until(lambda: alive_for_long(up, event), "its report is read")  # noqa: B023 - at once
    for event in events:
        finishes_first_attempt(up, host, event)


def test_a_result_backlog_is_read_before_an_attempt_is_lost(up, host, amqp_url):
    events = [begun(up, host) for _ in range(10)]
    assert up.processes[0].stop() == 0
    waiting = [
        command_message("result", "ScheduleResult", json.dumps({
            "event_id": events[number % len(events)]["event_id"], "attempt": 1, "status": "running",
            "heartbeat": 1,
        }).encode(), key=str(number)) for number in range(20_000)
    ]
    with closing(Link(amqp_url, "test")) as link:
        assert set(Publisher(link).send(waiting).wait(DEADLINE)) == {Receipt.CONFIRMED}
    for event in events:
        report(host, event, "running", heartbeat=HOUR)
    expire(up, *events)
    assert [looked_at(up, event) for event in events] == ["running"] * len(events)
    up.start("consumer").ready()
    for event in events:
        until(lambda: alive_for_long(up, event), "its report is read")  # noqa: B023 - at once
    for event in events:
        finishes_first_attempt(up, host, event)


@pytest.fixture
def behind(stack, database_url, amqp_url):
    """A proxy before the broker, and a sidecar that knows only the proxy."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    broker = Proxy(stack.rabbitmq.port)
    sidecar = Sidecar(database_url, amqp_url.replace(f":{stack.rabbitmq.port}/", f":{broker.port}/"))
    yield sidecar, broker
    broker.restore()
    sidecar.close()
    broker.close()


def begun_before_an_outage(up, host, stack):
    """Begin an event, and wait until its report cannot be delivered again."""
    event = begun(up, host)
    vhost = up.env["AMQP_URL"].rpartition("/")[2]
    listing = ("list_queues", "-q", "-p", vhost, "--no-table-headers", "messages_unacknowledged")
    until(lambda: set(stack.rabbitmq.ctl(*listing).split()) == {"0"}, "every message is acknowledged")
    return event


def test_a_worker_may_reconnect_after_the_producer(behind, host, stack):
    sidecar, broker = behind
    up = sidecar.up()
    event = begun_before_an_outage(up, host, stack)
    broker.cut()
    for process in up.processes:
        until(lambda: process.http("/readyz")[0] != 200, "it notices the outage")  # noqa: B023 - at once
    expire(up, event)
    broker.restore()
    assert looked_at(up, event) == "running"
    for process in up.processes:
        process.ready()
    assert looked_at(up, event) == "running"
    report(host, event, "running", heartbeat=HOUR)
    until(lambda: alive_for_long(up, event), "the report is read")
    finishes_first_attempt(up, host, event)


def test_a_worker_that_died_during_an_outage_of_the_broker_is_noticed_when_it_is_back(behind, host, stack):
    sidecar, broker = behind
    up = sidecar.up()
    event = begun_before_an_outage(up, host, stack)
    broker.cut()
    expire(up, event)
    broker.restore()
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    report(host, again, "succeeded")
    assert attempts(up, event) == ["lost", "succeeded"]


def test_a_consumer_that_was_killed_does_not_keep_attempts_open(sidecar, host):
    sidecar.env["AMQP_URL"] += "?heartbeat=1"
    up = sidecar.up(consumers=2)
    event = begun(up, host, heartbeat=1)
    up.processes[0].kill()
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    report(host, again, "succeeded")
    assert attempts(up, event) == ["lost", "succeeded"]


def test_with_an_older_consumer_only_the_clock_decides(up, host):
    event = begun(up, host)
    consumer = up.processes[0]
    assert consumer.stop() == 0
    expire(up, event)
    assert looked_at(up, event) == "running"
    up.sql("INSERT INTO replicas (id, role, host, pid, version, metrics_port, last_seen_at) "
           "VALUES (gen_random_uuid(), 'consumer', 'old', 1, '0.2.0', 1, now() + interval '1 hour')")
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
