"""Rows of any size are read within a bounded number of bytes: by claims and by batches of commands and results."""

import json
import tracemalloc
from datetime import timedelta

import pytest
from support import connected

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_results import record_results
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import connect
from scheduler.postgres.jobs.due import claim
from scheduler.postgres.jobs.lists import JobFilter, list_jobs, list_next_jobs
from scheduler.postgres.large_values import MAX_CLAIM_BYTES
from scheduler.postgres.runs.due import claim as claim_runs

SOON = timedelta(seconds=1)


@pytest.fixture
def session(database_url):
    opened = ClaimSession(database_url, "test")
    yield opened
    opened.close()


def fill(url, count, text, priority="NULL", tracked="NULL"):
    """Store due jobs, the longest first, with a payload from this SQL expression."""
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"""
            INSERT INTO jobs (id, job_type, next_run_at, starts_at, priority, payload, run)
            SELECT gen_random_uuid(), 'a', now() - interval '1 hour' + n * interval '1 second', now(), {priority},
                   json_build_object('n', n, 'text', {text}), {tracked}
            FROM generate_series(1, {count}) AS n RETURNING id""")
        return {row[0] for row in cursor.fetchall()}


def mixed():
    """A small payload, one that compresses, one that does not, in turn."""
    hard = "(SELECT string_agg(md5(n || '.' || m), '') FROM generate_series(1, 8000) AS m)"
    return f"CASE n % 3 WHEN 0 THEN 'small' WHEN 1 THEN repeat('x', 250000) ELSE {hard} END"


def sizes(jobs):
    return [len(job.definition.payload) for job in jobs]


def test_every_row_comes_whole_and_in_order_whatever_its_size(database_url, session):
    ids = fill(database_url, 60, mixed())
    seen = []
    while True:
        claimed = claim(session, 500)
        if not claimed.things:
            break
        total = sum(sizes(claimed.things))
        assert total - sizes(claimed.things)[-1] < MAX_CLAIM_BYTES
        assert claimed.size == total
        assert claimed.full == (len(seen) + len(claimed.things) < 60)
        assert (claimed.left_from is not None) <= claimed.full
        numbers = [json.loads(job.definition.payload)["n"] for job in claimed.things]
        assert numbers == list(range(len(seen) + 1, len(seen) + 1 + len(numbers)))
        for job in claimed.things:
            payload = json.loads(job.definition.payload)
            assert len(payload["text"]) == {0: 5, 1: 250_000, 2: 256_000}[payload["n"] % 3]
        seen += [job.id for job in claimed.things]
        session.settle([("UPDATE jobs SET status = 'done' WHERE id = ANY (%(ids)s::uuid[])",
                         {"ids": [job.id for job in claimed.things]})])
    assert set(seen) == ids
    assert len(seen) == 60


def test_large_rows_of_a_better_class_do_not_starve_the_others(database_url, session):
    fill(database_url, 40, "repeat('x', 250000)", priority="'high'")
    fill(database_url, 40, "repeat('x', 250000)")
    fill(database_url, 40, "repeat('x', 250000)", priority="'low'")
    claimed = claim(session, 500)
    priorities = [job.definition.priority for job in claimed.things]
    counts = {name: priorities.count(name) for name in ("high", None, "low")}
    assert counts["high"] > counts[None] >= 1
    assert counts["low"] >= 1
    assert sum(sizes(claimed.things)) < MAX_CLAIM_BYTES + 3 * 260_000


def test_a_claim_locks_no_more_than_twice_what_it_has_room_for_the_next_time(database_url, session):
    fill(database_url, 200, "repeat('x', 250000)")
    first = claim(session, 500)
    session.release()
    again = claim(session, 500)
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM jobs FOR UPDATE SKIP LOCKED")
        free = len(cursor.fetchall())
    assert len(first.things) == len(again.things)
    assert free >= 200 - 2.5 * len(first.things)


def test_rows_that_are_small_again_are_claimed_in_full_batches_again(database_url, session):
    fill(database_url, 50, "repeat('x', 250000)")
    claim(session, 500)
    session.settle([("UPDATE jobs SET status = 'done'", {})])
    fill(database_url, 400, "'small'")
    counts = []
    for _ in range(6):
        claimed = claim(session, 300)
        counts.append(len(claimed.things))
        session.release()
    assert counts == sorted(counts)
    assert counts[-1] == 300


def test_runs_are_bounded_by_their_event_outputs_and_attempts(database_url, session):
    with connected(database_url) as connection:
        connection.cursor().execute("""
            INSERT INTO runs (event_id, status, attempt, counted, finished_at, wake_at, job_id, job_type, due_at,
                              origin, policy, event, output, attempts, emitted_at)
            SELECT gen_random_uuid(), 'succeeded', 1, 1, now(), now(), gen_random_uuid(), 'a', now(), 'schedule',
                   '{}', '{"event_id": "x"}', CASE WHEN n % 2 = 0 THEN to_json(repeat('o', 60000)) END,
                   json_build_array(json_build_object('attempt', 1, 'outcome', 'succeeded', 'finished_at', now(),
                                                      'output', to_json(repeat('x', 200000))::text)), now()
            FROM generate_series(1, 50) AS n""")
    found = claim_runs(session, 500)
    assert 10 < len(found.things) < 25
    assert found.full
    for run in found.things:
        assert len(run.attempts[0].output) == 200_002
        assert run.output is None or len(run.output) == 60_002


def test_a_batch_about_large_rows_is_executed_in_parts(database_url):
    """A thousand small commands or results may be about rows of any size."""
    ids = sorted(fill(database_url, 150, "repeat('x', 250000)"))
    commands = [{"id": job_id, "issued_at": "2020-01-01T00:00:00Z"} for job_id in ids]
    pauses = [parse_command("pause", json.dumps(command).encode(), max_payload_bytes=1000) for command in commands]
    with connected(database_url) as other, other.cursor() as cursor:
        cursor.execute("""
            INSERT INTO runs (event_id, status, attempt, counted, emitted_at, deadline, wake_at, job_id, job_type,
                              due_at, origin, policy, event, attempts)
            SELECT gen_random_uuid(), 'delivered', 2, 2, now(), now() + interval '1 hour',
                   now() + interval '1 hour', gen_random_uuid(), 'a', now(), 'schedule', '{}', '{"event_id": "x"}',
                   json_build_array(json_build_object('attempt', 1, 'outcome', 'failed', 'finished_at', now(),
                                                      'output', to_json(repeat('x', 250000))::text))
            FROM generate_series(1, 150) RETURNING event_id""")
        results = [parse_result("result", json.dumps({"event_id": event_id, "attempt": 2, "status": "succeeded"})
                                .encode()) for event_id, in cursor.fetchall()]
    connection = connect(database_url, "test")
    tracemalloc.start()
    try:
        assert {command.status for command in apply_commands(connection, pauses, SOON)} == {"scheduled"}
        assert set(record_results(connection, results, SOON)) == {"recorded"}
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        connection.close()
    assert most < 20_000_000
    with connected(database_url) as other, other.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobs WHERE status = 'paused'")
        assert cursor.fetchone() == (150,)
        cursor.execute("SELECT count(*) FROM runs WHERE status = 'succeeded' AND json_array_length(attempts) = 2")
        assert cursor.fetchone() == (150,)


def test_a_page_of_large_jobs_is_cut_and_the_next_goes_on(database_url):
    ids = fill(database_url, 60, mixed())
    connection = connect(database_url, "test")
    try:
        pages = [list_jobs(connection, JobFilter(), 200)]
        while pages[-1].cut:
            pages.append(list_jobs(connection, JobFilter(), 200, pages[-1][-1].position))
        assert list_next_jobs(connection, JobFilter(), 60)[0].job.definition.payload == "{}"
    finally:
        connection.close()
    assert len(pages) > 1
    seen = [row.job for page in pages for row in page]
    assert {job.id for job in seen} == ids
    assert len(seen) == 60
    assert all(sum(sizes([row.job for row in page[:-1]])) < MAX_CLAIM_BYTES for page in pages)
    assert {len(json.loads(job.definition.payload)["text"]) for job in seen} == {5, 250_000, 256_000}
