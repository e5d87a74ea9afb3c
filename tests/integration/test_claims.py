"""The claim: oldest first, never early, skipping what others hold, by the index whatever the statistics say."""

import json
from datetime import timedelta

import pytest
from support import connected

from scheduler.postgres.claims import LONG_AGO, PLANNER, ClaimSession
from scheduler.postgres.jobs.due import CLAIM, Failed, Passed, Settlement, claim, settle
from scheduler.resources import query


@pytest.fixture
def sessions(database_url):
    opened = [ClaimSession(database_url, "test") for _ in range(2)]
    yield opened
    for session in opened:
        session.close()


def fill(url, count, when, status="pending"):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs (id, job_type, next_run_at, status) "
            f"SELECT gen_random_uuid(), 'j' || n, {when}, %s FROM generate_series(1, %s) n", (status, count),
        )


def test_claims_the_oldest_first_and_skips_what_another_holds(database_url, sessions):
    fill(database_url, 10, "now() - n * interval '1 minute'")
    first, second = sessions
    mine = claim(first, 4)
    theirs = claim(second, 100)
    assert [job.definition.job_type for job in mine.things] == ["j10", "j9", "j8", "j7"]
    assert [job.definition.job_type for job in theirs.things] == ["j6", "j5", "j4", "j3", "j2", "j1"]
    first.release()
    second.release()
    assert len(claim(first, 100).things) == 10


def test_nothing_is_claimed_early_and_the_wait_is_by_the_databases_clock(database_url, sessions):
    fill(database_url, 1, "now() + interval '2 hours'")
    found = claim(sessions[0], 10)
    assert found.things == []
    assert 3600 < found.seconds_to_next <= 2 * 3600
    fill(database_url, 1, "now() + interval '1 hour'", status="paused")
    assert claim(sessions[0], 10).seconds_to_next > 3600


def test_nothing_waits_in_an_empty_table(sessions):
    found = claim(sessions[0], 10)
    assert (found.things, found.seconds_to_next) == ([], None)


def test_the_lower_bound_hides_what_lies_below_it(database_url, sessions):
    fill(database_url, 10, "now() - n * interval '1 minute'")
    middle = claim(sessions[0], 10).things[4].wake_at
    sessions[0].release()
    assert len(claim(sessions[0], 10, middle).things) == 6


def test_each_outcome_is_settled_by_its_own_statement(database_url, sessions):
    fill(database_url, 4, "now() - interval '1 minute'")
    session = sessions[0]
    found = claim(session, 10)
    done, moved, triggered, failed = (job.id for job in found.things)
    with connected(database_url) as connection, connection.cursor() as cursor:
        session.release()
        cursor.execute(
            "UPDATE jobs SET triggers = ARRAY[now() - interval '1 hour'], trigger_at = now() WHERE id = %s",
            (triggered,),
        )
    claim(session, 10)
    now = found.claimed_at
    later = now + timedelta(hours=1)
    settle(session, Settlement(
        now, now + timedelta(seconds=1), [done], [(moved, later.isoformat())], triggered=[triggered],
        failed=[Failed(failed, 30.0, now, 'refused: {a "queue", full}')],
    ))
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id::text, row_to_json(jobs) FROM jobs")
        rows = dict(cursor.fetchall())
    assert (rows[done]["status"], rows[done]["occurrence"], rows[done]["wake_at"]) == ("done", 1, None)
    assert (rows[moved]["status"], rows[moved]["occurrence"], rows[moved]["retries"]) == ("pending", 1, 0)
    assert (rows[triggered]["triggers"], rows[triggered]["occurrence"]) == ([], 1)
    assert rows[triggered]["next_run_at"] is not None
    assert (rows[failed]["retries"], rows[failed]["wake_at"] > rows[failed]["next_run_at"]) == (1, True)
    # What is known of the last event afterwards.
    for each in (done, moved, triggered):
        assert rows[each]["last_emitted_at"] < rows[each]["last_confirmed_at"]
    assert rows[done]["last_due_at"] == rows[moved]["last_due_at"] == rows[failed]["next_run_at"]
    assert rows[triggered]["last_due_at"] < rows[done]["last_due_at"]
    assert (rows[failed]["last_due_at"], rows[failed]["last_refusals"]) == (None, 1)
    assert rows[failed]["last_problem"] == 'refused: {a "queue", full}'


def test_a_folded_or_passed_occurrence_moves_its_job_on_and_a_last_one_ends_it(database_url, sessions):
    fill(database_url, 3, "now() - interval '1 minute'")
    found = claim(sessions[0], 10)
    folded, passed, last = (job.id for job in found.things)
    now, later = found.claimed_at, found.claimed_at + timedelta(hours=1)
    settle(sessions[0], Settlement(now, now, passed=[
        Passed(folded, later, True, now), Passed(passed, later, False, None), Passed(last, None, False, None),
    ]))
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id::text, status, occurrence, last_due_at, finished_at IS NULL FROM jobs")
        rows = {row[0]: row[1:] for row in cursor.fetchall()}
    assert rows == {
        folded: ("pending", 1, now, True), passed: ("pending", 0, None, True), last: ("done", 0, None, False),
    }


def plan(url, *, statistics):
    with connected(url) as connection, connection.cursor() as cursor:
        if statistics:
            cursor.execute("ANALYZE jobs")
        for setting, value in PLANNER.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (setting, value))
        cursor.execute(query("claims/prepare", kind="jobs", claim=CLAIM))
        cursor.execute("EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS) EXECUTE claim_jobs (%s, %s)", (LONG_AGO, 100))
        return json.dumps(cursor.fetchone()[0])


@pytest.mark.parametrize("statistics", [False, True])
def test_the_claim_walks_its_index_and_sorts_nothing(database_url, statistics):
    fill(database_url, 20_000, "now() + n * interval '1 second'")
    fill(database_url, 20_000, "now() - n * interval '1 second'", status="done")
    fill(database_url, 500, "now() - n * interval '1 second'")
    found = plan(database_url, statistics=statistics)
    assert '"Index Name": "jobs_due"' in found
    for forbidden in ("Seq Scan", "Bitmap", '"Sort"'):
        assert forbidden not in found
