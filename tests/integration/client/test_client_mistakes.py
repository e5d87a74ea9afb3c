"""Mistakes of a host's first hour: each is an immediate error that names the problem, without a password."""

import threading
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pydantic import BaseModel, RootModel
from runner_support import Running, due
from support import DEADLINE, until, utc

from scheduler.client import AccessRefused, ClientError, CommandRejected, Handlers, Outbox, Runner, SchedulerClient

NAIVE = datetime(2026, 12, 1, 9)  # noqa: DTZ001 - the point


def with_user(url, credentials, path=None):
    parts = urlsplit(url)
    return parts._replace(netloc=f"{credentials}@{parts.hostname}:{parts.port}", path=path or parts.path).geturl()


def cancel(url):
    with SchedulerClient(url, timeout=DEADLINE) as client, pytest.raises(ClientError) as caught:
        client.cancel(uuid4())
    return caught.value


def run(url):
    with pytest.raises(ClientError) as caught:
        Runner(url, handlers=Handlers()).run()
    return caught.value


@pytest.mark.parametrize("act", [cancel, run])
@pytest.mark.parametrize("credentials", ["scheduler:se-cret", "nobody:se-cret"])
def test_a_wrong_user_or_password_is_named_with_its_place(amqp_url, act, credentials):
    parts = urlsplit(amqp_url)
    error = act(with_user(amqp_url, credentials))
    assert isinstance(error, AccessRefused)
    place = f"{parts.hostname}:{parts.port}"
    for part in ("authentication failed", credentials.split(":")[0], place, parts.path[1:]):
        assert part in str(error)
    assert "se-cret" not in str(error)


@pytest.mark.parametrize("act", [cancel, run])
def test_an_unknown_virtual_host_is_named(amqp_url, act):
    parts = urlsplit(amqp_url)
    error = act(parts._replace(path="/no-such%2Fhost").geturl())
    assert "'no-such/host'" in str(error)
    assert "does not exist" in str(error)
    assert parts.password not in str(error)


@pytest.mark.parametrize("act", [cancel, run])
def test_a_forbidden_virtual_host_is_named(stack, amqp_url, act):
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    stack.rabbitmq.ctl("add_user", "outsider", "se-cret")
    try:
        error = act(with_user(amqp_url, "outsider:se-cret"))
    finally:
        stack.rabbitmq.ctl("delete_user", "outsider")
    assert urlsplit(amqp_url).path[1:] in str(error)
    assert "not allowed" in str(error)
    assert "'outsider'" in str(error)
    assert "se-cret" not in str(error)


@pytest.mark.parametrize("act", [cancel, run])
@pytest.mark.parametrize("credentials", ["scheduler", "scheduler:"])
def test_a_missing_password_is_named(amqp_url, act, credentials):
    error = act(with_user(amqp_url, credentials))
    assert "password of user 'scheduler' is missing" in str(error)


def test_a_broker_that_rejects_the_credentials_is_skipped(amqp_url, host):
    with SchedulerClient(f"{with_user(amqp_url, 'nobody:se-cret')},{amqp_url}") as client:
        client.cancel(uuid4())
    host.get("scheduler_inbox")


@pytest.fixture
def rejected(amqp_url):
    """A function that schedules, and returns the problems by field."""
    with SchedulerClient(amqp_url) as client:
        def schedule(payload=None, **when):
            with pytest.raises(CommandRejected) as caught:
                client.schedule(uuid4(), "test.job", payload, **when)
            return {error.field: error.problem for error in caught.value.errors}

        yield schedule


@pytest.mark.parametrize("moment", [NAIVE, "2026-12-01T09:00:00", "2026-12-01T09:00:00.5"])
def test_a_naive_time_needs_a_timezone(rejected, amqp_url, sidecar, moment):
    problems = rejected(run_at=moment)
    assert list(problems) == ["run_at"]
    assert "naive" in problems["run_at"]
    assert "timezone" in problems["run_at"]
    assert "naive" in rejected(run_at=moment, every=60)["run_at"]
    sidecar.start("consumer").ready()
    with SchedulerClient(amqp_url) as client:
        accepted = client.schedule(uuid4(), "test.job", run_at=moment, timezone="Europe/Berlin", wait=DEADLINE)
    assert accepted.next_run_at.replace(microsecond=0) == datetime(2026, 12, 1, 8, tzinfo=UTC)


def test_a_timedelta_is_that_long_from_now(amqp_url, sidecar):
    sidecar.start("consumer").ready()
    before = utc()
    with SchedulerClient(amqp_url) as client:
        accepted = client.schedule(uuid4(), "test.job", run_at=timedelta(hours=1), wait=DEADLINE)
    assert before <= accepted.next_run_at - timedelta(hours=1) <= utc()


def test_a_timedelta_beyond_the_calendar_is_an_error(rejected):
    assert list(rejected(run_at=timedelta.max)) == ["run_at"]


class Awkward(BaseModel):
    value: object


def nested():
    value = {}
    for _ in range(100_000):
        value = {"more": value}
    return value


@pytest.mark.parametrize("payload", [
    [("invoice", 42)], [1, 2], "text", 42, {"at": utc()}, {"x": float("nan")}, {("a", 1): 2}, {"x": {1}}, nested(),
    Awkward(value=object()), RootModel[list[int]]([1]),
], ids=lambda value: type(value).__name__)
def test_a_payload_that_is_not_a_json_object_is_an_error_of_the_payload(rejected, payload):
    [field] = rejected(payload, every=60)
    assert field.startswith("payload")


def test_another_field_that_is_not_json_is_not_blamed_on_the_payload(rejected):
    assert list(rejected({}, every=60, run={"delay": object()})) == ["run"]


@pytest.mark.parametrize(("field", "value"), [
    ("run_at", date(2026, 12, 1)), ("run_at", 5), ("issued_at", "2026-12-01T09:00:00Z"), ("headers", "a"),
    ("correlation_id", 5), ("timezone", UTC), ("every", [5]), ("name", 5), ("run", []), ("tenant", 5),
])
def test_a_value_of_the_wrong_type_is_an_error_of_its_field(field, value):
    with pytest.raises(CommandRejected) as caught:
        Outbox(None).schedule(uuid4(), "test.job", **{"cron": "@daily"} | {field: value})
    assert {each.field.partition(".")[0] for each in caught.value.errors} - {"cron"} == {field}


@pytest.mark.parametrize("field", ["closed", "open", "weekend"])
def test_a_calendars_field_of_the_wrong_type_is_named(field):
    with pytest.raises(CommandRejected) as caught:
        Outbox(None).calendar("office", **{field: 5})
    assert [each.field for each in caught.value.errors] == [field]


def test_the_outbox_makes_the_same_checks():
    with pytest.raises(CommandRejected, match="naive"):
        Outbox(None).schedule(uuid4(), "test.job", run_at=NAIVE)


def test_a_runner_waits_for_its_queue_and_says_so(amqp_url, host, caplog, monkeypatch):
    monkeypatch.setattr("scheduler.client.session._MISSING_SECONDS", 0.2)
    running = Running(amqp_url, host, queue_name="orders_due")
    running.handlers.on_due("order")(running.seen.put)
    runner = Runner(amqp_url, handlers=running.handlers, queue_name="orders_due")
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    until(lambda: sum("orders_due" in record.message for record in caplog.records
                      if record.name.startswith("scheduler")) > 1, "two warnings")
    assert not runner.ready.is_set()
    probe = host.connection.channel()
    with pytest.raises(Exception, match="no queue 'orders_due'"):
        probe.queue_declare("orders_due", passive=True)
    host.channel.queue_declare("orders_due", durable=True)
    assert runner.ready.wait(DEADLINE)
    event = due("order")
    host.publish("orders_due", event, exchange="", message_id=event["event_id"])
    assert str(running.seen.get(timeout=DEADLINE).event_id) == event["event_id"]
    runner.stop()
    thread.join(DEADLINE)
