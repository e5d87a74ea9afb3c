"""Heartbeats, the backlog and pruning, against a real database."""

import math
from uuid import uuid4

import pytest
from support import connected

from scheduler.domain.errors import Unavailable
from scheduler.ops import metrics
from scheduler.ops.health import Health
from scheduler.postgres.maintenance_queries import PENDING_COUNTED, Backlog, MaintenanceSession, Replica
from scheduler.postgres.schema import lock_key
from scheduler.processes import maintenance
from scheduler.processes.maintenance import Maintenance
from scheduler.processes.roles import ROLES
from scheduler.processes.runtime import Stop
from scheduler.resources import query
from scheduler.settings import Settings

JOBS = """
INSERT INTO jobs (id, job_type, status, next_run_at, retry_at, retries, finished_at)
SELECT gen_random_uuid(), 't', %s, now() + %s::interval, now() + %s::interval, %s, now() + %s::interval
FROM generate_series(1, %s)
"""


@pytest.fixture
def session(database_url):
    opened = MaintenanceSession(database_url, "producer")
    yield opened
    opened.close()


@pytest.fixture
def sql(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        def run(statement, *values):
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


def jobs(sql, count, *, status="pending", due=None, retry=None, finished=None):
    sql(JOBS, status, due, retry, 0 if retry is None else 1, finished, count)


def replica(role="producer"):
    return Replica(uuid4(), role, "host", 7, "1.0", 8000)


def test_the_backlog_counts_due_unemitted_jobs(session, sql):
    assert session.measure() == Backlog(0, 0.0, 0)
    jobs(sql, 3, due="-1 hour")
    jobs(sql, 2, due="1 hour")
    jobs(sql, 4, status="paused", due="-9 hours")
    jobs(sql, 5, status="done", finished="-1 hour")
    due, oldest, pending, *_ = session.measure()
    assert (due, pending) == (3, 5)
    assert 3600 <= oldest < 2 * 3600


def test_a_refused_event_is_due_although_its_next_try_is_not(session, sql):
    jobs(sql, 1, due="-2 hours", retry="1 hour")
    jobs(sql, 1, due="-1 hour", retry="-1 second")
    due, oldest, *_ = session.measure()
    assert due == 2
    assert 2 * 3600 <= oldest < 3 * 3600


def test_many_pending_jobs_are_estimated(session, sql):
    jobs(sql, 5 * PENDING_COUNTED, due="1 hour")
    sql("ANALYZE jobs")
    assert session.measure().pending == pytest.approx(5 * PENDING_COUNTED, rel=0.05)


def test_calendars_in_use_that_end_within_thirty_days_are_counted(session, sql):
    def calendar(name, days, tenant="default", content="{}"):
        sql("INSERT INTO calendars (name, tenant, content, version, revision, issued_at, valid_until) "
            "VALUES (%s, %s, %s, 1, 1, now(), (now() AT TIME ZONE 'UTC')::date + %s)", name, tenant, content, days)

    def use(name, status="pending", tenant="default"):
        sql("INSERT INTO jobs (id, job_type, status, next_run_at, calendar, tenant) "
            "VALUES (gen_random_uuid(), 'a', %s, now() + interval '1 hour', %s, %s)", status, name, tenant)

    calendar("soon", 29)
    calendar("later", 30)
    calendar("unused", 29)
    calendar("over", -5, tenant="*")
    calendar("over", 90, tenant="acme")
    for name in ("soon", "soon", "later"):
        use(name)
    use("unused", status="done")
    use("over", tenant="acme")  # has a calendar of its own
    assert session.measure().calendars_expiring == 1
    use("over", status="paused")
    assert session.measure().calendars_expiring == 2


def test_measuring_walks_indexes_only(session, sql):
    jobs(sql, 20_000, due="1 hour")
    jobs(sql, 20_000, status="done", finished="-1 hour")
    sql("VACUUM ANALYZE jobs")
    with session._connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + query("maintenance/measure"), {"most": 100_000, "few": 1000})
        plan = [line for (line,) in cursor.fetchall()]
    scans = [line for line in plan if " on jobs" in line or " using jobs" in line]
    assert len(scans) >= 4
    assert all("Index" in line for line in scans), plan


def test_replicas_see_each_other(session):
    first, second, consumer = replica(), replica(), replica("consumer")
    assert session.beat(first, {}) == {"producer": 1}
    assert session.beat(second, {}) == {"producer": 2}
    assert session.beat(consumer, {}) == {"producer": 2, "consumer": 1}
    assert session.beat(first, {"due": 1}) == {"producer": 2, "consumer": 1}
    session.leave(second)
    assert session.beat(first, {}) == {"producer": 1, "consumer": 1}


def test_a_silent_replica_is_not_counted_and_later_forgotten(session, sql):
    quiet, loud = replica(), replica()
    session.beat(quiet, {})
    sql("UPDATE replicas SET last_seen_at = now() - interval '1 minute'")
    assert session.beat(loud, {}) == {"producer": 1}
    assert len(sql("SELECT id FROM replicas")) == 2
    sql("UPDATE replicas SET last_seen_at = now() - interval '11 minutes' WHERE id = %s", str(quiet.id))
    session.beat(loud, {})
    assert len(sql("SELECT id FROM replicas")) == 1


def test_only_what_finished_long_ago_is_pruned(session, sql):
    for status in ("done", "cancelled", "awaiting"):
        jobs(sql, 2, status=status, finished="-31 days")
        jobs(sql, 1, status=status, finished="-29 days")
    jobs(sql, 1, due="-40 days")
    jobs(sql, 1, status="paused", due="-40 days")
    assert [session.prune(30, 4), session.prune(30, 4), session.prune(30, 4)] == [4, 2, 0]
    assert sql("SELECT count(*) FROM jobs") == [(5,)]


def test_without_retention_tombstones_live_for_a_day(session, sql):
    for status in ("done", "cancelled", "awaiting"):
        jobs(sql, 1, status=status, finished="-25 hours")
        jobs(sql, 1, status=status, finished="-23 hours")
    sql("INSERT INTO jobs (id, job_type, status, cancelled_at, finished_at)"
        " VALUES (gen_random_uuid(), 't', 'done', now(), now() - interval '23 hours')")
    assert session.prune(0, 100) == 4
    assert sorted(sql("SELECT status, cancelled_at IS NULL FROM jobs")) == [
        ("awaiting", True), ("cancelled", True), ("done", False)]


def test_a_job_with_an_open_run_is_not_pruned(session, sql):
    jobs(sql, 2, status="done", finished="-31 days")
    sql("INSERT INTO runs (event_id, status, job_id) SELECT gen_random_uuid(), 'running', id FROM jobs LIMIT 1")
    assert session.prune(30, 100) == 1
    sql("DELETE FROM runs")
    assert session.prune(30, 100) == 1


def test_the_audit_is_pruned_by_the_same_age(session, sql):
    sql("INSERT INTO audit (at, who, via, action, kind, thing, tenant) "
        "SELECT now() - age * interval '1 day', 'ann', 'api', 'pause', 'job', age::text, 'acme' "
        "FROM unnest(ARRAY[29, 31, 32, 33]) AS age")
    assert [session.prune_audit(30, 2), session.prune_audit(30, 2), session.prune_audit(30, 2)] == [2, 1, 0]
    assert sql("SELECT thing FROM audit") == [("29",)]


def test_audit_entries_of_the_last_day_are_never_deleted(session, sql):
    sql("INSERT INTO audit (at, who, via, action, kind, thing, tenant) "
        "SELECT now() - age * interval '1 hour', 'ann', 'api', 'pause', 'job', age::text, 'acme' "
        "FROM unnest(ARRAY[0, 23, 25]) AS age")
    assert [session.prune_audit(0, 10), session.prune_audit(-5, 10)] == [1, 0]
    assert sorted(sql("SELECT thing FROM audit")) == [("0",), ("23",)]


def test_pruning_skips_locked_rows(session, sql, database_url):
    jobs(sql, 2, status="done", finished="-31 days")
    with connected(database_url) as other, other.cursor() as cursor:
        other.autocommit = False
        cursor.execute("SELECT id FROM jobs LIMIT 1 FOR UPDATE")
        assert session.prune(30, 10) == 1
        other.rollback()
        assert session.prune(30, 10) == 1


def test_one_replica_prunes_at_a_time(session, sql, database_url):
    jobs(sql, 2, status="done", finished="-31 days")
    with connected(database_url) as other, other.cursor() as cursor:
        other.autocommit = False
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key("scheduler", 0x5C4ED02E),))
        assert session.prune(30, 10) == 0
        other.rollback()
    assert session.prune(30, 10) == 2


def test_a_tick_fills_the_gauges_and_an_outage_empties_them(database_url, sql, monkeypatch):
    monkeypatch.setattr(maintenance, "PRUNE_SECONDS", 3600.0)  # however slow the machine is
    jobs(sql, 3, due="-10 seconds")
    jobs(sql, 2 * maintenance.PRUNE_BATCH, status="done", finished="-2 days")
    health = Health()
    settings = Settings(database_url=database_url, retention_days=1)
    thread = Maintenance(ROLES["consumer"], settings, Stop(), health.part("postgres"), 8000)
    assert thread.run_once()
    assert metrics.backlog_jobs._value.get() == 3
    assert metrics.replicas.labels("consumer")._value.get() == 1
    assert sql("SELECT count(*) FROM jobs") == [(3,)]
    assert health.ready()[0]
    ours = "datname = current_database() AND application_name = 'scheduler consumer maintenance'"
    assert sql(f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {ours}") == [(True,)]
    assert not thread.run_once()
    assert math.isnan(metrics.backlog_jobs._value.get())
    assert not health.ready()[0]
    assert thread.run_once()
    assert health.ready()[0]
    thread._leave()
    assert sql("SELECT id FROM replicas") == []


def test_a_database_too_slow_to_count_is_still_there(database_url, monkeypatch):
    def slow(_):
        raise Unavailable("canceling statement due to statement timeout")

    monkeypatch.setattr(MaintenanceSession, "measure", slow)
    health = Health()
    settings = Settings(database_url=database_url)
    thread = Maintenance(ROLES["consumer"], settings, Stop(), health.part("postgres"), 8000)
    assert not thread.run_once()
    assert health.ready()[0]
    assert math.isnan(metrics.backlog_jobs._value.get())


def test_an_idle_tick_is_two_queries(database_url, monkeypatch):
    thread = Maintenance(ROLES["producer"], Settings(database_url=database_url), Stop(), None, 8000)
    thread.run_once()
    queries = []
    monkeypatch.setattr("scheduler.postgres.maintenance_queries.query",
                        lambda name: queries.append(name) or query(name))
    thread.run_once()
    assert queries[0] == "replicas/beat"
    assert len(queries) <= 2
    thread._leave()


def test_a_summary_has_the_activity_of_the_minute(database_url, caplog):
    caplog.set_level("INFO")
    thread = Maintenance(ROLES["producer"], Settings(database_url=database_url), Stop(), None, 8000)
    metrics.jobs_due.inc(7)
    for _ in range(7):
        metrics.due_lag.observe(0.004)
    thread.summarise()
    [record] = [record for record in caplog.records if record.getMessage() == "summary"]
    assert record.fields["due"] == 7
    assert 3 <= record.fields["lag_p99_ms"] <= 5


def test_message_digests_are_pruned_after_a_day(session, sql):
    for age in ("23 hours", "25 hours", "26 hours"):
        values = "(gen_random_uuid(), {}, now() - %s::interval)"
        sql(f"INSERT INTO trigger_messages VALUES {values.format('gen_random_uuid()')}", age)
        sql(f"INSERT INTO redeliveries VALUES {values.format(1)}", age)
    assert [session.prune_repeated(1), session.prune_repeated(9), session.prune_repeated(9)] == [1, 1, 0]
    assert sql("SELECT count(*) FROM trigger_messages UNION ALL SELECT count(*) FROM redeliveries") == [(1,), (1,)]
