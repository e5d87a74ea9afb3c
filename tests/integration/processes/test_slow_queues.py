"""A queue that does not confirm delays only the events of its own route."""

import json
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest
from support import DEADLINE, until

from scheduler.dev.servers.vhosts import name_of
from scheduler.emitting import batch
from scheduler.emitting.loop import SESSIONS, Emitter
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.emitting.sources.runs import DueRuns
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.wakeup import Wakeup
from scheduler.rabbit import route_window
from scheduler.rabbit.event_publisher import EventPublisher
from scheduler.rabbit.link import Link
from scheduler.rabbit.slow_routes import SlowRoutes

SLOW_QUEUE = "acme:slow"


@pytest.fixture
def slow_queue(stack, amqp_url, host):
    """Bind a queue to due.acme. While suspended, it accepts messages and does not confirm them."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    host.channel.queue_declare(SLOW_QUEUE, durable=True, arguments={"x-queue-type": "classic"})
    host.channel.queue_bind(SLOW_QUEUE, "schedule.events", "due.acme.#")
    host.channel.queue_declare("globex", durable=True)
    host.channel.queue_bind("globex", "schedule.events", "due.globex.#")

    def call(function):
        resource = f'rabbit_misc:r(<<"{name_of(amqp_url)}">>, queue, <<"{SLOW_QUEUE}">>)'
        stack.rabbitmq.evaluate(
            f"{{ok, Q}} = rabbit_amqqueue:lookup({resource}), sys:{function}(amqqueue:get_pid(Q), 60000)")

    yield SimpleNamespace(suspend=lambda: call("suspend"), resume=lambda: call("resume"))
    call("resume")


@pytest.fixture
def emitter(sidecar, amqp_url, monkeypatch):
    # Without a limit on how long rows are held, a loop that waits for the slow confirm never gets further.
    monkeypatch.setattr(batch, "HOLD_SECONDS", 100 * DEADLINE)
    monkeypatch.setattr(route_window, "REST_SHARE", 0.0)
    with ExitStack() as stack:
        slow_routes = stack.enter_context(closing(SlowRoutes()))
        link = Link(amqp_url, "test")
        stack.callback(link.close)
        sessions = [stack.enter_context(closing(ClaimSession(sidecar.database_url, f"test {number}")))
                    for number in range(SESSIONS)]
        wakeup = stack.enter_context(closing(Wakeup(sidecar.database_url, "test wakeup")))
        publisher = EventPublisher(link, slow_routes)
        yield stack.enter_context(closing(Emitter(
            (DueJobs(), DueRuns()), sessions, wakeup, publisher, batch_size=500, poll=0.5)))


def add_jobs(sidecar, tenant, count):
    rows = sidecar.sql(
        "INSERT INTO jobs (id, job_type, next_run_at, route, tenant) SELECT gen_random_uuid(), 'a', now(), "
        f"'{tenant}', '{tenant}' FROM generate_series(1, {count}) RETURNING id")
    return {row["id"] for row in rows}


def jobs_with(sidecar, tenant, status):
    rows = sidecar.sql(f"SELECT id FROM jobs WHERE tenant = '{tenant}' AND status = '{status}'")
    return {row["id"] for row in rows}


def job_ids(bodies):
    return [json.loads(body)["job_id"] for body in bodies]


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one batch after the other"])
def test_other_events_are_settled_while_the_slow_ones_are_unconfirmed(
    sidecar, host, slow_queue, emitter, together
):
    unconfirmed = emitter._publisher.slow_routes._sent

    def emit_until(condition, what):
        until(lambda: emitter.run_once() or condition(), what)

    slow_queue.suspend()
    first = add_jobs(sidecar, "acme", 1)
    if not together:
        emitter.run_once()
    others = add_jobs(sidecar, "globex", 20)
    emit_until(lambda: jobs_with(sidecar, "globex", "done") == others, "the other events")
    emit_until(lambda: len(unconfirmed) == 1, "the slow event on its own connection")

    slow = first | add_jobs(sidecar, "acme", 5)
    others |= add_jobs(sidecar, "globex", 20)
    emit_until(lambda: jobs_with(sidecar, "globex", "done") == others, "the other events, again")
    assert jobs_with(sidecar, "acme", "pending") == slow
    assert sorted(job_ids(host.drain("globex"))) == sorted(others)

    assert len(unconfirmed) == 1  # a slow route gets no second event before the first is confirmed
    slow_queue.resume()
    emit_until(lambda: jobs_with(sidecar, "acme", "done") == slow, "the slow events")
    # Late confirms count. Only the first event was sent twice: on the shared channel and on its own connection.
    assert sorted(job_ids(host.drain(SLOW_QUEUE))) == sorted([*slow, *first])
