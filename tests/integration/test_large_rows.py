"""A claim holds a bounded number of bytes, and leaves the rest for the next one."""

import json

import pytest
from support import connected

from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.jobs.due import claim
from scheduler.postgres.large_values import MAX_CLAIM_BYTES
from scheduler.postgres.runs.due import claim as claim_runs


@pytest.fixture
def session(database_url):
    opened = ClaimSession(database_url, "test")
    yield opened
    opened.close()


def fill(url, count, text, priority="NULL", tracked="NULL"):
    """Store jobs that are due, the first of them the longest, with a payload of this SQL expression."""
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
        found = claim(session, 500)
        if not found.things:
            break
        total = sum(sizes(found.things))
        assert total - sizes(found.things)[-1] < MAX_CLAIM_BYTES
        assert found.size == total
        assert found.full == (len(seen) + len(found.things) < 60)
        assert (found.left_from is not None) <= found.full
        numbers = [json.loads(job.definition.payload)["n"] for job in found.things]
        assert numbers == list(range(len(seen) + 1, len(seen) + 1 + len(numbers)))
        for job in found.things:
            payload = json.loads(job.definition.payload)
            assert len(payload["text"]) == {0: 5, 1: 250_000, 2: 256_000}[payload["n"] % 3]
        seen += [job.id for job in found.things]
        session.settle([("UPDATE jobs SET status = 'done' WHERE id = ANY (%(ids)s::uuid[])",
                         {"ids": [job.id for job in found.things]})])
    assert set(seen) == ids
    assert len(seen) == 60


def test_large_rows_of_a_better_class_do_not_starve_the_others(database_url, session):
    fill(database_url, 40, "repeat('x', 250000)", priority="'high'")
    fill(database_url, 40, "repeat('x', 250000)")
    fill(database_url, 40, "repeat('x', 250000)", priority="'low'")
    found = claim(session, 500)
    counts = {name: sum(job.definition.priority == name for job in found.things) for name in ("high", None, "low")}
    assert counts["high"] > counts[None] >= 1
    assert counts["low"] >= 1
    assert sum(sizes(found.things)) < MAX_CLAIM_BYTES + 3 * 260_000


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
        found = claim(session, 300)
        counts.append(len(found.things))
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
