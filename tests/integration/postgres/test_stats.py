"""The whole at a glance: exact up to a bound, and beyond it what ANALYZE has found, without counting."""

import json

import pytest
from support import connected

from scheduler.postgres import stats
from scheduler.postgres.connection import connect

FILL = """
INSERT INTO jobs (id, job_type, tenant, status, next_run_at, starts_at)
SELECT gen_random_uuid(), 'test', %s, %s, '2099-01-01', '2099-01-01' FROM generate_series(1, %s)
"""
RECUR = """
INSERT INTO jobs (id, job_type, tenant, status, every, next_run_at, starts_at, last_due_at, last_confirmed_at)
SELECT gen_random_uuid(), 'test', %s, 'pending', '1 day', '2099-01-01', '2026-01-01', now(),
       now() + %s * interval '1 millisecond' FROM generate_series(1, %s)
"""
# Its times are from the database's clock: the heartbeat is a minute old.
END = """
INSERT INTO run_history (event_id, status, job_id, job_type, tenant, due_at, started_at, finished_at, attempts)
VALUES (gen_random_uuid(), %(status)s, gen_random_uuid(), 'test', 'default', now() - %(age)s * interval '1 minute',
        now() - interval '1 minute', now(), %(attempts)s)
"""


@pytest.fixture
def filled(database_url):
    """3,000 pending, 1,000 done and 40 paused jobs of one tenant, 7 pending of another."""
    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs SET (autovacuum_enabled = off)")  # it would ANALYZE when it likes
        for tenant, status, count in (("default", "pending", 3000), ("default", "done", 1000),
                                      ("default", "paused", 40), ("acme", "pending", 7)):
            cursor.execute(FILL, (tenant, status, count))
        cursor.execute("ANALYZE jobs")
        connection = connect(database_url, "test", default_transaction_read_only="on")
        connection.autocommit = True
        yield connection, cursor
        connection.close()


def test_counts_below_the_limit_are_exact(filled):
    connection, cursor = filled
    cursor.execute("DELETE FROM jobs WHERE status = 'done'")  # and ANALYZE has not run since
    found = stats.stats(connection, None).jobs
    assert found == {"pending": 3007, "paused": 40, "done": 0, "cancelled": 0}
    assert stats.stats(connection, "acme").jobs == {"pending": 7, "paused": 0, "done": 0, "cancelled": 0}


def test_counts_above_the_limit_are_estimates(filled, monkeypatch):
    connection, cursor = filled
    monkeypatch.setattr(stats, "COUNTED", 1000)
    found = stats.stats(connection, None).jobs
    assert found["pending"] == pytest.approx(3007, rel=0.02)
    assert (found["paused"], found["done"], found["cancelled"]) == (40, 1000, 0)
    cursor.execute("DELETE FROM jobs WHERE status = 'pending'")
    assert stats.stats(connection, None).jobs["pending"] > 2900  # not counted, until ANALYZE has looked again
    cursor.execute("ANALYZE jobs")
    assert stats.stats(connection, None).jobs["pending"] == 0


def test_a_tenants_jobs_are_counted_up_to_the_bound(filled, monkeypatch):
    connection, _ = filled
    monkeypatch.setattr(stats, "COUNTED", 1000)
    assert stats.stats(connection, "default").jobs == {"pending": 1000, "paused": 40, "done": 1000, "cancelled": 0}


def test_lag_is_known_where_all_jobs_recur(filled):
    connection, cursor = filled
    assert stats.stats(connection, None).lag_ms is None  # none of them was ever emitted
    cursor.execute(RECUR, ("default", 100, 40))
    cursor.execute(RECUR, ("acme", 300, 2))
    found = {tenant: stats.stats(connection, tenant).lag_ms for tenant in ("default", "acme", "globex")}
    assert found == {"default": pytest.approx((100, 100)), "acme": pytest.approx((300, 300)), "globex": None}
    assert stats.stats(connection, None).lag_ms == pytest.approx((100, 300))


def test_recurring_and_finished_jobs_are_counted_once(filled):
    connection, cursor = filled
    cursor.execute(RECUR, ("default", 100, 3))
    cursor.execute("UPDATE jobs SET status = 'done', finished_at = now(), next_run_at = NULL "
                   "WHERE every IS NOT NULL")
    cursor.execute(RECUR, ("default", 500, 2))
    assert stats.stats(connection, None).lag_ms[0] == pytest.approx(100)  # for five, of which three took 100 ms


def test_durations_are_by_the_clock_of_the_worker_and_of_the_attempt_that_ended_it(filled):
    connection, cursor = filled
    ended = {"started_at": "2026-11-17T09:00:00+00:00", "finished_at": "2026-11-17T09:00:02+00:00"}
    failed = {"outcome": "failed"} | ended | {"started_at": "2026-11-17T08:00:00+00:00"}
    attempts = json.dumps([failed, {"outcome": "succeeded"} | ended])
    cursor.execute(END, {"status": "succeeded", "age": 2, "attempts": attempts})
    assert stats.stats(connection, None).mean_duration_ms == pytest.approx(2000)
    attempts = json.dumps([failed, {"outcome": "failed"} | ended])
    cursor.execute(END, {"status": "dead", "age": 1, "attempts": attempts})
    cursor.execute(END, {"status": "dead", "age": 1, "attempts": "[]"})  # with an unknown duration
    assert stats.stats(connection, None).mean_duration_ms == pytest.approx(2000)


def test_the_newest_runs_are_those_that_count(filled, monkeypatch):
    connection, cursor = filled
    for age, status in ((1, "succeeded"), (4, "dead"), (2, "succeeded"), (3, "dead")):
        cursor.execute(END, {"status": status, "age": age, "attempts": "[]"})
    figures = stats.stats(connection, None)
    assert (figures.succeeded, figures.ended) == (2, 4)
    monkeypatch.setattr(stats, "_SOME", 2)
    figures = stats.stats(connection, None)
    assert (figures.succeeded, figures.ended) == (2, 2)
