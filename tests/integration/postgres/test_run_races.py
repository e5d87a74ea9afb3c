"""A result that is recorded just when the producer records its run: nothing is lost of either."""

import json
import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from support import DEADLINE, connected, iso, until, utc

from scheduler.commands import apply_results
from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_results import record_results
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.domain.runs.run import replace
from scheduler.emitting.source import BatchTimes, EmissionTime
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.emitting.sources.runs import OUTAGE_GRACE, DueRuns
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import connect
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM
from scheduler.postgres.runs import due as runs_due
from scheduler.postgres.runs import store
from scheduler.rabbit.publisher import Receipt

SOON = timedelta(0)


@pytest.fixture
def session(database_url):
    opened = ClaimSession(database_url, "test")
    yield opened
    opened.close()


@pytest.fixture
def consumer(database_url):
    opened = connect(database_url, "test")
    yield opened
    opened.close()


def due_jobs(consumer, session, count):
    """Claim so many tracked jobs, and decide what they emit."""
    for _ in range(count):
        body = {"id": str(uuid4()), "job_type": "a", "run_at": iso(utc(hours=-1)), "run": {}}
        command = parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000)
        apply_commands(consumer, [command], SOON)
    source = DueJobs()
    claim = source.claim(session, 100, FROM_THE_BOTTOM)
    emissions = [source.decide(job, claim.claimed_at) for job in claim.things]
    assert len(emissions) == count
    for emission in emissions:
        source.messages(emission, EmissionTime.of(claim.claimed_at))
    return source, emissions, claim.claimed_at


def succeed(consumer, emission):
    body = {"event_id": emission.event_id, "attempt": 1, "status": "succeeded"}
    return record_results(consumer, [parse_result("result", json.dumps(body).encode())], SOON)


def settle(source, session, emissions, at, receipt=Receipt.CONFIRMED):
    refusal = None if receipt is Receipt.CONFIRMED else receipt
    source.settle(session, [(emission, [receipt], refusal) for emission in emissions], [], BatchTimes(at, at, at))


def statuses(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT event_id::text, status, attempt, json_array_length(early) FROM runs")
        return {event_id: found for event_id, *found in cursor.fetchall()}


def test_a_run_that_is_opened_and_ends_again_while_it_is_looked_for(database_url, session, consumer, monkeypatch):
    """The first of two late results finds the run in the history; for the second it must not be unknown."""
    source, (emission,), at = due_jobs(consumer, session, 1)
    source.record(session, [emission], at)
    settle(source, session, [emission], at)
    failed = parse_result("result", json.dumps(
        {"event_id": emission.event_id, "attempt": 1, "status": "failed", "retry": False}
    ).encode())
    assert record_results(consumer, [failed], SOON) == ["recorded"]
    finish(session)
    look, other = apply_results.lock_finished, connect(database_url, "other")

    def looked(cursor, ids):
        monkeypatch.setattr(apply_results, "lock_finished", look)
        assert succeed(other, emission) == ["recorded"]  # it moves among the open ones before we look here
        found = look(cursor, ids)
        finish(session)  # and back before the producer's settlement
        return found

    monkeypatch.setattr(apply_results, "lock_finished", looked)
    assert record_results(consumer, [failed], SOON) == ["unchanged"]
    other.close()
    assert statuses(database_url) == {}
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT status FROM run_history")
        assert cursor.fetchall() == [("succeeded",)]


def test_the_same_retry_through_two_consumers_at_once(database_url, session, consumer, monkeypatch):
    source, (emission,), at = due_jobs(consumer, session, 1)
    source.record(session, [emission], at)
    settle(source, session, [emission], at)
    given_up = {"event_id": emission.event_id, "attempt": 1, "status": "failed", "retry": False}
    record_results(consumer, [parse_result("result", json.dumps(given_up).encode())], SOON)
    finish(session)
    retry = parse_command("retry", json.dumps({"event_id": emission.event_id}).encode(), max_payload_bytes=1000)
    look, other = store.lock_finished, connect(database_url, "other")

    def looked(cursor, ids):
        monkeypatch.setattr(store, "lock_finished", look)
        assert [command.status for command in apply_commands(other, [retry], SOON)] == ["scheduled"]
        return look(cursor, ids)

    monkeypatch.setattr(store, "lock_finished", looked)
    assert [command.status for command in apply_commands(consumer, [retry], SOON)] == ["unchanged"]
    other.close()
    assert statuses(database_url) == {emission.event_id: ["waiting", 1, 0]}


def finish(session):
    """Do the producer's work for ended runs, without announcing them."""
    ended = runs_due.claim(session, 10).things
    assert len(ended) == 1
    runs_due.settle(session, runs_due.RunSettlement(ended=[run.event_id for run in ended]))


def until_one_waits(database_url):
    """Wait until a session of this database waits for a lock."""
    with connected(database_url) as connection, connection.cursor() as cursor:
        until(lambda: cursor.execute("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
                                     "AND wait_event_type = 'Lock'") or cursor.fetchone(), "one to wait")


def test_a_result_between_the_producers_copy_and_its_second_try(database_url, session, consumer, monkeypatch):
    source, (first, second, third), at = due_jobs(consumer, session, 3)
    assert succeed(consumer, first) == ["recorded"]  # the producer's COPY will fail
    copy = session.copy

    def copied(statement, lines):
        done = copy(statement, lines)
        assert succeed(consumer, second) == ["recorded"]  # the producer has seen only the first
        return done

    monkeypatch.setattr(session, "copy", copied)
    source.record(session, [first, second, third], at)
    settle(source, session, [first, second, third], at)
    assert statuses(database_url) == {
        first.event_id: ["succeeded", 1, 0], second.event_id: ["succeeded", 1, 0],
        third.event_id: ["delivered", 1, 0],
    }


@pytest.mark.parametrize("receipt", [Receipt.REFUSED, Receipt.RETURNED, Receipt.UNKNOWN])
def test_early_results_survive_a_rejected_event(database_url, session, consumer, receipt):
    """It was emitted once, unconfirmed, and was reported on; the second time the broker does not accept it."""
    source, (heard, unheard), at = due_jobs(consumer, session, 2)
    assert succeed(consumer, heard) == ["recorded"]
    source.record(session, [heard, unheard], at)
    settle(source, session, [heard, unheard], at, receipt)
    assert statuses(database_url) == {heard.event_id: ["expected", 0, 1]}
    assert succeed(consumer, heard) == ["unchanged"]


@pytest.mark.parametrize("receipt", [Receipt.REFUSED, Receipt.UNKNOWN])
def test_an_open_run_survives_a_rejected_event(database_url, session, consumer, receipt):
    """Its job is due at the same instant again, as a consumer of release 0.2 may have it."""
    source, (emission,), at = due_jobs(consumer, session, 1)
    source.record(session, [emission], at)
    settle(source, session, [emission], at)
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE jobs SET status = 'pending', next_run_at = last_due_at")
    [again] = [source.decide(job, at) for job in source.claim(session, 100, FROM_THE_BOTTOM).things]
    assert again.event_id == emission.event_id
    source.record(session, [again], at)
    settle(source, session, [again], at, receipt)
    assert statuses(database_url) == {emission.event_id: ["delivered", 1, 0]}


def test_a_result_that_is_being_recorded_while_the_producer_copies(database_url, session, consumer):
    source, (emission,), at = due_jobs(consumer, session, 1)
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")  # a consumer that has not committed yet
        cursor.execute("INSERT INTO runs (event_id, status, noted_at) VALUES (%s, 'expected', now())",
                       (emission.event_id,))
        recording = threading.Thread(target=source.record, args=(session, [emission], at))
        recording.start()
        until_one_waits(database_url)
        cursor.execute("COMMIT")
        recording.join(DEADLINE)
    settle(source, session, [emission], at)
    assert statuses(database_url) == {emission.event_id: ["delivered", 1, 0]}


def test_a_result_that_comes_while_the_claim_is_open_finds_the_run_when_it_is_committed(
    database_url, session, consumer
):
    source, (emission,), at = due_jobs(consumer, session, 1)
    source.record(session, [emission], at)
    answers = []
    reporting = threading.Thread(target=lambda: answers.extend(succeed(consumer, emission)))
    reporting.start()
    until_one_waits(database_url)
    settle(source, session, [emission], at)
    reporting.join(DEADLINE)
    assert answers == ["recorded"]
    assert statuses(database_url) == {emission.event_id: ["succeeded", 1, 0]}


def test_of_two_cancels_at_once_one_ends_the_runs(session, consumer):
    source, (emission,), at = due_jobs(consumer, session, 1)
    source.record(session, [emission], at)
    settle(source, session, [emission], at)
    body = json.dumps({"id": emission.job.id}).encode()
    cancels = [parse_command("cancel", body, max_payload_bytes=1000) for _ in range(2)]
    assert [command.status for command in apply_commands(consumer, cancels, SOON)] == ["cancelled", "unchanged"]


def test_after_an_outage_no_unheard_worker_is_lost(database_url, session, consumer):
    source, (emission,), at = due_jobs(consumer, session, 1)
    source.record(session, [emission], at)
    settle(source, session, [emission], at)
    running = {"event_id": emission.event_id, "attempt": 1, "status": "running", "heartbeat": 25}
    record_results(consumer, [parse_result("result", json.dumps(running).encode())], SOON)
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE runs SET alive_until = now() - interval '1 second', "
                       "wake_at = now() - interval '1 second'")
        runs = DueRuns(after_outage=True)
        claim = runs.claim(session, 10, FROM_THE_BOTTOM)
        [decided] = [runs.decide(run, claim.claimed_at) for run in claim.things]
        runs.settle(session, [(decided, [], None)], [], BatchTimes(at, at, at))
        cursor.execute("SELECT status, wake_at > now() FROM runs")
        assert cursor.fetchall() == [("running", True)]
    run = decided.before
    assert outcome(runs, run, claim.claimed_at + OUTAGE_GRACE) == "lost"  # there was no heartbeat then either
    assert outcome(DueRuns(), run, claim.claimed_at) == "lost"  # nothing was in its way
    limited = replace(run, deadline=claim.claimed_at)
    assert outcome(runs, limited, claim.claimed_at) == "timed_out"


def outcome(source, run, now):
    return source.decide(run, now).after.attempts[-1].outcome
