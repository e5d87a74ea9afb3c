"""Jobs with overlap: wait are released in every order of commits, and no batch waits."""

import json
import threading
from contextlib import ExitStack, closing
from datetime import timedelta
from uuid import uuid4

import psycopg2
import pytest
from support import DEADLINE, connected, iso, until, utc

from scheduler.commands import apply_batch
from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_results import record_results
from scheduler.commands.transaction_hooks import TransactionHooks
from scheduler.domain.errors import SchedulerError
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.emitting import poll_schedule
from scheduler.emitting.loop import SESSIONS, Emitter
from scheduler.emitting.source import BatchTimes, EmissionTime
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.emitting.sources.runs import DueRuns
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import connect
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM
from scheduler.postgres.wakeup import Wakeup
from scheduler.rabbit.event_publisher import EventPublisher
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Receipt
from scheduler.rabbit.slow_routes import SlowRoutes
from scheduler.resources import query

SOON = timedelta(0)


@pytest.fixture
def sessions(database_url):
    with ExitStack() as stack:
        yield [stack.enter_context(closing(ClaimSession(database_url, f"test {n}"))) for n in range(3)]


@pytest.fixture
def consumers(database_url):
    with ExitStack() as stack:
        yield [stack.enter_context(closing(connect(database_url, f"test {n}"))) for n in range(2)]


@pytest.fixture
def sql(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        def run(statement, *values):
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


class Batch:
    """A batch of a source, claimed in a session and not settled yet."""

    def __init__(self, source, session):
        self.source, self.session = source, session
        claim = source.claim(session, 100, FROM_THE_BOTTOM)
        self.at = claim.claimed_at
        self.emissions = [source.decide(thing, self.at) for thing in claim.things]
        for emission in self.emissions:
            source.messages(emission, EmissionTime.of(self.at))
        source.record(session, self.emissions, self.at)

    def settle(self, receipt=Receipt.CONFIRMED):
        refusal = None if receipt is Receipt.CONFIRMED else receipt
        results = [(emission, [receipt], refusal) for emission in self.emissions]
        self.source.settle(self.session, results, [], BatchTimes(self.at, self.at, self.at))


def request(consumer, job_id=None, overlap="wait", **run):
    body = {"id": job_id or str(uuid4()), "job_type": "a", "run_at": iso(utc(hours=-1)), "every": 36000,
            "run": {"overlap": overlap, "max_attempts": 1} | run}
    apply_commands(consumer, [parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000)], SOON)
    return body["id"]


def open_run(consumer, session, **run):
    """Create a job whose first run is open; return the ids of both."""
    job_id = request(consumer, **run)
    batch = Batch(DueJobs(), session)
    [event_id] = [emission.event_id for emission in batch.emissions]
    batch.settle()
    return job_id, event_id


def make_due(sql):
    sql("UPDATE jobs SET next_run_at = now() - interval '1 second'")


def hold(sql, session):
    """Claim the job while its run is open."""
    make_due(sql)
    batch = Batch(DueJobs(), session)
    assert [emission.held for emission in batch.emissions] == [True]
    return batch


def succeed(consumer, event_id):
    body = json.dumps({"event_id": event_id, "attempt": 1, "status": "succeeded"}).encode()
    assert record_results(consumer, [parse_result("result", body)], SOON) == ["recorded"]


def is_due(sql):
    [(held_by, due)] = sql("SELECT held_by, wake_at <= now() FROM jobs")
    return held_by is None and due


def test_a_hold_that_commits_after_its_run_ended_is_released(sessions, consumers, sql):
    _, event_id = open_run(consumers[0], sessions[0])
    batch = hold(sql, sessions[0])
    succeed(consumers[0], event_id)  # must not wait: this thread has yet to settle the batch
    batch.settle()
    assert is_due(sql)


def test_a_hold_that_commits_before_its_run_ends_is_released(database_url, sessions, consumers, sql):
    _, event_id = open_run(consumers[0], sessions[0])
    hold(sql, sessions[0]).settle()
    assert not is_due(sql)
    with closing(Wakeup(database_url, "test")) as wakeup:
        succeed(consumers[0], event_id)
        assert is_due(sql)
        assert wakeup.wait(DEADLINE)["jobs"] <= utc()


def test_the_end_of_a_run_is_not_decided_on_a_stale_snapshot(sessions, consumers, sql):
    """The hold commits while the end of the run is being stored."""
    _, event_id = open_run(consumers[0], sessions[0])
    batch = hold(sql, sessions[0])
    ending = threading.Thread(target=succeed, args=(consumers[0], event_id))
    ending.start()
    until(lambda: not ending.is_alive() or sql(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ), "it is stored, or waits")
    batch.settle()
    ending.join(DEADLINE)
    assert is_due(sql)


@pytest.mark.parametrize("hold_first", [True, False])
def test_a_run_that_a_producer_ends_releases_its_job(sessions, consumers, sql, hold_first):
    open_run(consumers[0], sessions[0], timeout=1)
    held = hold(sql, sessions[0])
    sql("UPDATE runs SET status = 'running', deadline = now() - interval '1 second', "
        "wake_at = now() - interval '1 second'")
    ended = Batch(DueRuns(), sessions[1])
    assert [emission.after.status for emission in ended.emissions] == ["dead"]
    for batch in (held, ended) if hold_first else (ended, held):
        batch.settle()
    assert is_due(sql)


@pytest.mark.parametrize("receipt", list(Receipt))
def test_a_run_that_began_under_another_policy_releases_its_job(sessions, consumers, sql, receipt):
    """Even if the broker does not accept the message about its end."""
    job_id, event_id = open_run(consumers[0], sessions[0], overlap="allow")
    request(consumers[0], job_id)
    hold(sql, sessions[0]).settle()
    succeed(consumers[0], event_id)
    Batch(DueRuns(), sessions[1]).settle(receipt)
    assert is_due(sql)


class RefusedError(SchedulerError):
    pass


class Refusing(TransactionHooks):
    def saved(self, cursor):  # noqa: ARG002 - as all attendants
        raise RefusedError


@pytest.mark.parametrize("refused", [False, True])
def test_a_command_that_has_the_job_locked_checks_the_hold(sessions, consumers, sql, monkeypatch, refused):
    """The release skips the job, whether or not the command is applied in the end."""
    job_id, event_id = open_run(consumers[0], sessions[0])
    hold(sql, sessions[0]).settle()
    save = apply_batch.save

    def saved(*arguments):
        succeed(consumers[1], event_id)
        Batch(DueRuns(), sessions[1]).settle()
        save(*arguments)

    monkeypatch.setattr(apply_batch, "save", saved)
    trigger = parse_command("trigger", json.dumps({"id": job_id}).encode(), max_payload_bytes=1000)
    if refused:
        with pytest.raises(RefusedError):
            apply_commands(consumers[0], [trigger], SOON, Refusing())
    else:
        apply_commands(consumers[0], [trigger], SOON)
    assert is_due(sql)


def test_a_broker_that_refuses_ends_the_hold(sessions, consumers, sql):
    """Else the end of another run would cut its backoff short, and no backlog would count it."""
    open_run(consumers[0], sessions[0])
    hold(sql, sessions[0]).settle()
    sql("DELETE FROM runs")  # it ended, and the producer that should have released the job died
    sql("UPDATE jobs SET retry_at = now() - interval '1 second'")
    Batch(DueJobs(), sessions[0]).settle(Receipt.REFUSED)
    assert sql("SELECT retries, held_by FROM jobs") == [(1, None)]


def test_a_release_reads_held_jobs_only(sessions, sql):
    sql("INSERT INTO jobs (id, job_type, next_run_at) "
        "SELECT gen_random_uuid(), 'a', now() FROM generate_series(1, 9999)")
    sql("ANALYZE jobs")
    release = query("jobs/release", condition="true", due_from="min(wake_at)")
    [ids] = sql("SELECT array_agg(id)::text FROM (SELECT id FROM jobs LIMIT 500) AS few")
    plan = [line for line, in sessions[0].query(f"EXPLAIN {release}", {"ids": ids[0]})]
    assert any("jobs_held" in line for line in plan), plan


@pytest.fixture
def emitter(database_url, amqp_url, monkeypatch):
    """An emitting loop that looks at all there is each time, by batches of two."""
    monkeypatch.setattr(poll_schedule, "FULL_SCAN_SHARE", 0.0)
    with ExitStack() as stack:
        link = stack.enter_context(closing(Link(amqp_url, "test")))
        own = [stack.enter_context(closing(ClaimSession(database_url, f"own {n}"))) for n in range(SESSIONS)]
        wakeup = stack.enter_context(closing(Wakeup(database_url, "test wakeup")))
        made = stack.enter_context(closing(Emitter(
            [DueJobs(), DueRuns()], own, wakeup, EventPublisher(link, SlowRoutes()), batch_size=2, poll=0.0,
        )))
        yield made
        made.settle()


def test_a_producer_does_not_wait_for_itself(emitter, sessions, consumers, sql):
    """The runs in one batch belong to jobs in the next batch, which is in flight before the first is settled."""
    jobs = [open_run(consumers[0], sessions[0]) for _ in range(4)]
    for _, event_id in jobs:
        succeed(consumers[0], event_id)
    for number, (job_id, event_id) in enumerate(jobs):
        sql("UPDATE jobs SET next_run_at = now() - make_interval(secs => %s) WHERE id = %s", 10 - number, job_id)
        sql("UPDATE runs SET wake_at = at, finished_at = at "
            "FROM (SELECT now() - make_interval(secs => %s)) AS given (at) WHERE event_id = %s",
            10 + number, event_id)

    def told():
        emitter.run_once()  # raises Unavailable after the lock timeout if a batch waits for another
        return sql("SELECT count(*) FROM run_history") == [(4,)]

    until(told, "all are notified")
    emitter.settle()
    assert sql("SELECT count(*) FROM jobs WHERE occurrence = 2") == [(4,)]


def test_consecutive_batches_of_one_job_do_not_deadlock(emitter, sessions, consumers, sql):
    """Jobs return to an instant whose run is open and is just being emitted again."""
    for _ in range(2):
        open_run(consumers[0], sessions[0], overlap="allow")
    sql("UPDATE runs SET status = 'waiting', retry_at = now() - interval '1 second', "
        "wake_at = now() - interval '1 second'")
    # Two others, so that there may be more and the loop does not wait for the settlement of its batch.
    sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'b', now()), "
        "(gen_random_uuid(), 'b', now())")
    emitter.run_once()
    assert sql("SELECT event_id FROM runs FOR UPDATE SKIP LOCKED") == []  # they are in flight
    sql("UPDATE jobs SET next_run_at = last_due_at WHERE job_type = 'a'")

    def emitted():
        emitter.run_once()
        return sql("SELECT count(*) FROM jobs WHERE occurrence = 2") == [(2,)]

    until(emitted, "both are emitted")
    emitter.settle()
    assert sql("SELECT status, attempt FROM runs") == [("delivered", 2)] * 2


def test_a_copy_leaves_no_savepoint(sessions, consumers):
    for _ in range(2):
        request(consumers[0])
    Batch(DueJobs(), sessions[0])
    with pytest.raises(SchedulerError) as raised:
        sessions[0].query("RELEASE SAVEPOINT recording", {})
    assert isinstance(raised.value.__cause__, psycopg2.errors.InvalidSavepointSpecification)
    sessions[0].release()
