"""The claim: oldest first, never early, skipping what others hold, by the index whatever the statistics say."""

import json
from datetime import timedelta

import pytest
from support import connected

from scheduler.postgres.claims import LONG_AGO, PLANNER, Claims, Settlement, delay
from scheduler.resources import query


@pytest.fixture
def lanes(database_url):
    opened = [Claims(database_url, "test") for _ in range(2)]
    yield opened
    for lane in opened:
        lane.close()


def fill(url, count, when, status="pending"):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs (id, job_type, next_run_at, status) "
            f"SELECT gen_random_uuid(), 'j' || n, {when}, %s FROM generate_series(1, %s) n", (status, count),
        )


def test_claims_the_oldest_first_and_skips_what_another_holds(database_url, lanes):
    fill(database_url, 10, "now() - n * interval '1 minute'")
    first, second = lanes
    mine = first.claim(4)
    theirs = second.claim(100)
    assert [job.job_type for job in mine.jobs] == ["j10", "j9", "j8", "j7"]
    assert [job.job_type for job in theirs.jobs] == ["j6", "j5", "j4", "j3", "j2", "j1"]
    first.release()
    second.release()
    assert len(first.claim(100).jobs) == 10


def test_nothing_is_claimed_early_and_the_wait_is_by_the_databases_clock(database_url, lanes):
    fill(database_url, 1, "now() + interval '2 hours'")
    claim = lanes[0].claim(10)
    assert claim.jobs == []
    assert 3600 < claim.seconds_to_next <= 2 * 3600
    fill(database_url, 1, "now() + interval '1 hour'", status="paused")
    assert lanes[0].claim(10).seconds_to_next > 3600


def test_nothing_waits_in_an_empty_table(lanes):
    claim = lanes[0].claim(10)
    assert (claim.jobs, claim.seconds_to_next) == ([], None)


def test_the_floor_hides_what_lies_below_it(database_url, lanes):
    fill(database_url, 10, "now() - n * interval '1 minute'")
    middle = lanes[0].claim(10).jobs[4].wake_at
    lanes[0].release()
    assert len(lanes[0].claim(10, middle).jobs) == 6


def test_each_outcome_is_settled_by_its_own_statement(database_url, lanes):
    fill(database_url, 4, "now() - interval '1 minute'")
    lane = lanes[0]
    claim = lane.claim(10)
    done, moved, triggered, failed = (job.id for job in claim.jobs)
    with connected(database_url) as connection, connection.cursor() as cursor:
        lane.release()
        cursor.execute(
            "UPDATE jobs SET triggers = ARRAY[now() - interval '1 hour'], trigger_at = now() WHERE id = %s",
            (triggered,),
        )
    lane.claim(10)
    later = claim.claimed_at + timedelta(hours=1)
    lane.settle(Settlement([done], [], [(moved, later, 1)], [triggered], [(failed, 30.0)]))
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id::text, row_to_json(jobs) FROM jobs")
        rows = dict(cursor.fetchall())
    assert (rows[done]["status"], rows[done]["occurrence"], rows[done]["wake_at"]) == ("done", 1, None)
    assert (rows[moved]["status"], rows[moved]["occurrence"], rows[moved]["retries"]) == ("pending", 1, 0)
    assert (rows[triggered]["triggers"], rows[triggered]["occurrence"]) == ([], 1)
    assert rows[triggered]["next_run_at"] is not None
    assert (rows[failed]["retries"], rows[failed]["wake_at"] > rows[failed]["next_run_at"]) == (1, True)


def test_the_delay_doubles_up_to_a_minute_with_jitter():
    assert [delay(n, 1.0) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert delay(3, 0.0) == 4


def plan(url, *, statistics):
    with connected(url) as connection, connection.cursor() as cursor:
        if statistics:
            cursor.execute("ANALYZE jobs")
        for setting, value in PLANNER.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (setting, value))
        statement = query("claim_due") % {"floor": "$1", "limit": "$2"}
        cursor.execute(f"PREPARE claim_due (timestamptz, bigint) AS {statement}")
        cursor.execute("EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS) EXECUTE claim_due (%s, %s)", (LONG_AGO, 100))
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
