"""The claim: oldest first, never early, skipping locked rows, by the index for all statistics."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import connected

from scheduler.postgres.claims import LONG_AGO, PLANNER, ClaimSession
from scheduler.postgres.jobs.due import CLAIM, FailedEmission, JobSettlement, SkippedOccurrences, claim, settle
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM, LOW_WITH_HIGH, NORMAL_WITH_HIGH, ClassShares
from scheduler.resources import query


@pytest.fixture
def sessions(database_url):
    opened = [ClaimSession(database_url, "test") for _ in range(2)]
    yield opened
    for session in opened:
        session.close()


CLASSES = ("high", "normal", "low")


def fill(url, count, when, status="pending", priority=None):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs (id, job_type, next_run_at, status, priority) "
            f"SELECT gen_random_uuid(), 'j' || n, {when}, %s, %s FROM generate_series(1, %s) n",
            (status, priority, count),
        )


def test_claims_the_oldest_first_and_skips_locked_rows(database_url, sessions):
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
    claimed = claim(sessions[0], 10)
    assert claimed.things == []
    assert 3600 < claimed.seconds_to_next <= 2 * 3600
    fill(database_url, 1, "now() + interval '1 hour'", status="paused")
    assert claim(sessions[0], 10).seconds_to_next > 3600


def test_an_empty_table_has_no_next_due_time(sessions):
    claimed = claim(sessions[0], 10)
    assert (claimed.things, claimed.seconds_to_next) == ([], None)


def test_rows_below_the_lower_bound_are_not_claimed(database_url, sessions):
    fill(database_url, 10, "now() - n * interval '1 minute'")
    middle = claim(sessions[0], 10).things[4].wake_at
    sessions[0].release()
    assert len(claim(sessions[0], 10, (LONG_AGO, middle, LONG_AGO)).things) == 6


def test_each_outcome_is_settled_by_its_own_statement(database_url, sessions):
    fill(database_url, 4, "now() - interval '1 minute'")
    session = sessions[0]
    claimed = claim(session, 10)
    done, moved, triggered, failed = (job.id for job in claimed.things)
    with connected(database_url) as connection, connection.cursor() as cursor:
        session.release()
        cursor.execute(
            "UPDATE jobs SET triggers = ARRAY[now() - interval '1 hour'], trigger_at = now() WHERE id = %s",
            (triggered,),
        )
    claim(session, 10)
    now = claimed.claimed_at
    later = now + timedelta(hours=1)
    settle(session, JobSettlement(
        now, now + timedelta(seconds=1), [done], [(moved, later.isoformat())], triggered=[triggered],
        failed=[FailedEmission(failed, 30.0, now, 'refused: {a "queue", full}')],
    ))
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id::text, row_to_json(jobs) FROM jobs")
        rows = dict(cursor.fetchall())
    assert (rows[done]["status"], rows[done]["occurrence"], rows[done]["wake_at"]) == ("done", 1, None)
    assert (rows[moved]["status"], rows[moved]["occurrence"], rows[moved]["retries"]) == ("pending", 1, 0)
    assert (rows[triggered]["triggers"], rows[triggered]["occurrence"]) == ([], 1)
    assert rows[triggered]["next_run_at"] is not None
    assert (rows[failed]["retries"], rows[failed]["wake_at"] > rows[failed]["next_run_at"]) == (1, True)
    # The last event's fields afterwards.
    for each in (done, moved, triggered):
        assert rows[each]["last_emitted_at"] < rows[each]["last_confirmed_at"]
    assert rows[done]["last_due_at"] == rows[moved]["last_due_at"] == rows[failed]["next_run_at"]
    assert rows[triggered]["last_due_at"] < rows[done]["last_due_at"]
    assert (rows[failed]["last_due_at"], rows[failed]["last_refusals"]) == (None, 1)
    assert rows[failed]["last_problem"] == 'refused: {a "queue", full}'


def test_a_folded_or_passed_occurrence_moves_its_job_on_and_a_last_one_ends_it(database_url, sessions):
    fill(database_url, 3, "now() - interval '1 minute'")
    claimed = claim(sessions[0], 10)
    folded, passed, last = (job.id for job in claimed.things)
    now, later = claimed.claimed_at, claimed.claimed_at + timedelta(hours=1)
    settle(sessions[0], JobSettlement(now, now, passed=[
        SkippedOccurrences(folded, later, True, now), SkippedOccurrences(passed, later, False, None),
        SkippedOccurrences(last, None, False, None),
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
        cursor.execute(query("claims/prepare", kind="jobs", claim=CLAIM.statement))
        values = (*FROM_THE_BOTTOM, *ClassShares.of(100))
        cursor.execute(f"EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS) EXECUTE claim_jobs "
                       f"({', '.join(['%s'] * len(values))})", values)
        return cursor.fetchone()[0]


@pytest.mark.parametrize("statistics", [False, True])
def test_the_claim_walks_its_index_and_sorts_nothing(database_url, statistics):
    fill(database_url, 20_000, "now() + n * interval '1 second'")
    fill(database_url, 20_000, "now() - n * interval '1 second'", status="done")
    fill(database_url, 500, "now() - n * interval '1 second'")
    fill(database_url, 5_000, "now() - n * interval '1 second'", priority="low")
    nodes = list(walk(plan(database_url, statistics=statistics)[0]["Plan"]))
    assert not [node["Node Type"] for node in nodes if node["Node Type"] in ("Seq Scan", "Sort")
                or "Bitmap" in node["Node Type"]]
    scans = [node for node in nodes if "Index Name" in node]
    assert {node["Index Name"] for node in scans} == {"jobs_due"}
    # Due rows by class, whether any normal one is due, and the next due time; never more than requested.
    assert len(scans) == 5
    shares = ClassShares.of(100)
    assert sum(node["Actual Rows"] for node in scans) <= shares.better + shares.low + 2
    assert not any(node.get("Rows Removed by Filter") for node in scans)


def test_skewed_statistics_do_not_change_the_claims_index(database_url):
    """A session plans once, and its statistics may be outdated."""
    fill(database_url, 5_000, "now() + n * interval '1 second'", priority="high")
    nodes = list(walk(plan(database_url, statistics=True)[0]["Plan"]))
    assert {node["Index Name"] for node in nodes if "Index Name" in node} == {"jobs_due"}


def test_due_rows_of_other_classes_are_scanned_once(database_url, sessions):
    """The next claim begins after it, where its own class had nothing."""
    fill(database_url, 200, "now() - n * interval '1 second'", priority="low")
    first = claim(sessions[0], 18)
    settle(sessions[0], JobSettlement(first.claimed_at, first.claimed_at, [job.id for job in first.things]))
    high, normal, low = first.resume_from
    assert (high, normal) == (first.claimed_at, first.claimed_at)
    assert low == first.things[-1].wake_at < first.claimed_at
    second = claim(sessions[0], 18, first.resume_from)
    assert [job.wake_at for job in second.things] == sorted(job.wake_at for job in second.things)
    assert second.things[0].wake_at > low
    # Late arrivals below it are found by a poll from the bottom, or through a wake-up.
    fill(database_url, 1, "now() - interval '1 hour'", priority="high")
    sessions[0].release()
    assert claim(sessions[0], 18, second.resume_from).things[0].definition.priority == "low"
    sessions[0].release()
    assert claim(sessions[0], 18).things[0].definition.priority == "high"


def walk(node):
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


@pytest.mark.parametrize("limit", [1, 2, 3, 9, 10, 100, 500, 10_000])
def test_each_class_gets_at_least_a_tenth_of_a_batch(limit):
    shares = ClassShares.of(limit)
    assert shares.better >= limit
    assert shares.high >= 1
    for highs in range(shares.high + 1):
        normals, lows = shares.normals(highs), shares.lows(highs, normal_waits=True)
        for room in (normals, lows):
            assert 10 * room >= highs + normals + lows, (highs, normals, lows)
        lows = shares.lows(highs, normal_waits=False)
        assert 10 * lows >= highs + lows, (highs, lows)


def test_a_few_high_rows_limit_the_other_classes(database_url, sessions):
    for priority, count in (("high", 3), ("normal", 400), ("low", 400)):
        fill(database_url, count, "now() - n * interval '1 second'", priority=priority)
    claimed = claim(sessions[0], 500)
    kinds = Counter(job.definition.priority for job in claimed.things)
    assert kinds == {"high": 3, "normal": NORMAL_WITH_HIGH, "low": LOW_WITH_HIGH}
    assert (claimed.full, claimed.urgent) == (True, True)


@given(counts=st.tuples(*[st.integers(0, 40)] * 3), limit=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_class_starves_and_each_keeps_its_order(database_url, sessions, counts, limit, seed):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs")
    for priority, count in zip(CLASSES, counts, strict=True):
        when = f"now() - ((n * 7919 + {seed}) %% 1000) * interval '1 second'"
        fill(database_url, count, when, priority=priority)
    left, seen = dict(zip(CLASSES, counts, strict=True)), {kind: [] for kind in CLASSES}
    while any(left.values()):
        claimed = claim(sessions[0], limit)
        batch = [(job.definition.priority or "normal", job) for job in claimed.things]
        assert [each for each, _ in batch] == sorted((each for each, _ in batch), key=CLASSES.index)
        for kind in CLASSES:
            mine = [job for name, job in batch if name == kind]
            assert len(mine) == left[kind] or 10 * len(mine) >= len(batch) > 0
            seen[kind] += [job.wake_at for job in mine]
            left[kind] -= len(mine)
        assert claimed.full or not any(left.values())
        settle(sessions[0], JobSettlement(claimed.claimed_at, claimed.claimed_at, [job.id for _, job in batch]))
    for moments in seen.values():
        assert moments == sorted(moments)
    assert [len(seen[kind]) for kind in CLASSES] == list(counts)
