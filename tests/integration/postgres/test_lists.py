"""Pages of jobs, runs and the audit: each row once, by index, for all filters and positions."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support import connected

from scheduler.domain.caller import Caller, Via
from scheduler.postgres.audit import AuditEntry, AuditFilter, list_audit, write_entries
from scheduler.postgres.connection import connect
from scheduler.postgres.jobs.lists import JobFilter, count_jobs, list_jobs, list_next_jobs, page_of_job_ids
from scheduler.postgres.runs import lists as run_lists
from scheduler.postgres.runs.lists import RunFilter, list_runs
from scheduler.resources import query

COUNT = 3000
FILL = """
INSERT INTO jobs (id, job_type, name, tenant, status, next_run_at, starts_at, created_at, priority, cron)
SELECT gen_random_uuid(), 'type.' || n %% 50, CASE WHEN n %% 7 = 0 THEN 'Job ' || n END,
       CASE WHEN n %% 20 = 0 THEN 'acme' ELSE 'default' END,
       (ARRAY['pending', 'paused', 'done', 'cancelled'])[1 + n %% 4]::job_status, '2099-01-01', '2099-01-01',
       now() - n / 10 * interval '1 second', (ARRAY['high', 'normal', 'low', NULL])[1 + n %% 4]::priority,
       CASE WHEN n %% 3 = 0 THEN '0 9 * * *' END
FROM generate_series(1, %s) AS n
"""
FILTERS = [
    JobFilter(), JobFilter(status="done"), JobFilter(tenant="acme"), JobFilter(job_type="type.7"),
    JobFilter(q="type.4"), JobFilter(q="Job 7"), JobFilter(priority="normal"), JobFilter(job_type="none"),
    JobFilter(status="done", job_type="type.7"), JobFilter(tenant="acme", status="paused"),
    JobFilter(status="pending"), JobFilter(tenant="acme", status="pending"), JobFilter(priority="high"),
    JobFilter(priority="low", status="pending"), JobFilter(q="type.4", status="pending"), JobFilter(q="type"),
    JobFilter(q="none"), JobFilter(q="Job 7", tenant="acme"), JobFilter(q="type.1", priority="high"),
]


@pytest.fixture
def connection(database_url):
    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute(FILL, (COUNT,))
        cursor.execute("ANALYZE jobs")
    made = connect(database_url, "test", default_transaction_read_only="on")
    made.autocommit = True
    yield made
    made.close()


def matching(connection, wanted):
    conditions = ["job_type IS NOT NULL"]
    if wanted.q is not None:
        conditions.append(f"(job_type LIKE '{wanted.q}%' OR name LIKE '{wanted.q}%')")
    given = {name: getattr(wanted, name) for name in ("status", "tenant", "job_type")}
    conditions += [f"{name} = '{value}'" for name, value in given.items() if value is not None]
    if wanted.priority is not None:
        conditions.append(f"coalesce(priority, 'normal') = '{wanted.priority}'")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM jobs WHERE {' AND '.join(conditions)} ORDER BY created_at DESC, id DESC")
        return [job for job, in cursor]


@pytest.mark.parametrize("wanted", [JobFilter(), JobFilter(tenant="acme"), JobFilter(job_type="type.8")])
def test_every_pending_job_is_on_one_page_of_those_due_next(connection, database_url, wanted):
    """All of them are due at one instant, except for those that the broker rejected."""
    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute("UPDATE jobs SET retry_at = '2098-01-01' WHERE job_type LIKE 'type.2%'")
        cursor.execute("SELECT id FROM jobs WHERE status = 'pending' ORDER BY wake_at, id")
        pending = [job for job, in cursor]
    match = set(matching(connection, wanted))
    expected = [job for job in pending if job in match]
    seen, place = [], None
    while page := list_next_jobs(connection, wanted, 70, place):
        seen += [row.job.id for row in page]
        place = page[-1].job.wake_at, page[-1].job.id
    assert seen
    assert seen == expected


def test_every_job_is_on_one_page_in_order(connection):
    for wanted in FILTERS:
        expected = matching(connection, wanted)
        seen, after = [], None
        while page := list_jobs(connection, wanted, 200, after):
            seen += [row.job.id for row in page]
            after = page[-1].position
        assert seen == expected
        seen, after = [], None
        while page := page_of_job_ids(connection, wanted, 500, after):
            seen += [each.id for each in page]
            after = (page[-1].at, page[-1].id)
        assert seen == expected


def test_no_page_reads_the_whole_table(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT created_at, id FROM jobs ORDER BY created_at, id OFFSET 100 LIMIT 1")
        [last] = cursor.fetchall()
        cursor.execute("SET enable_seqscan = off")  # the table is small; what matters is that there is another way
        for wanted, after in itertools.product(FILTERS, (None, last)):
            before, before_id = after or (None, None)
            values = wanted.values() | {"limit": 50, "before": before, "before_id": before_id}
            cursor.execute("EXPLAIN " + query("jobs/page_ids", newest=wanted.newest), values)
            plan = "\n".join(line for line, in cursor)
            assert "Seq Scan on jobs" not in plan, plan
            assert "Seq Scan on recurring_jobs" not in plan, plan


def test_jobs_are_counted_and_those_due_next_found_by_the_same_filters(connection):
    for wanted in FILTERS:
        expected = matching(connection, wanted)
        assert count_jobs(connection, wanted, 5000) == len(expected)
        assert count_jobs(connection, wanted, 7) == min(7, len(expected))
        next_ones = [row.job.id for row in list_next_jobs(connection, wanted, 5000)]
        if wanted.status in (None, "pending"):
            assert sorted(next_ones) == sorted(matching(connection, replace(wanted, status="pending")))
        else:
            assert next_ones == []


MANY = """
INSERT INTO jobs (id, job_type, name, tenant, status, next_run_at, starts_at, created_at, priority, cron)
SELECT ('aaaa' || substr(gen_random_uuid()::text, 5))::uuid, 'type.' || n %% 10, 'Job ' || n, 'default',
       (ARRAY['pending', 'paused', 'done', 'cancelled'])[1 + n %% 4]::job_status, '2099-01-01', '2099-01-01',
       now() - n * interval '1 second', NULL, CASE WHEN n %% 3 = 0 THEN '0 9 * * *' END
FROM generate_series(1, %s) AS n
"""
# Five that differ in everything, the oldest of all, some of which recur.
RARE = """
INSERT INTO jobs (id, job_type, name, tenant, status, next_run_at, starts_at, created_at, priority, cron)
SELECT ('bbbb' || substr(gen_random_uuid()::text, 5))::uuid, 'rare.type', 'Seldom ' || n, 'few',
       CASE WHEN n = 4 THEN 'paused' ELSE 'pending' END::job_status, '2099-01-01', '2099-01-01',
       now() - n * interval '1 year', 'high', CASE WHEN n % 2 = 0 THEN '0 9 * * *' END
FROM generate_series(1, 5) AS n
"""
SELDOM = [
    JobFilter(job_type="rare.type"), JobFilter(tenant="few"), JobFilter(priority="high"), JobFilter(q="rare"),
    JobFilter(q="Seldom"), JobFilter(q="bbbb"), JobFilter(job_type="rare.type", status="pending"),
    JobFilter(q="rare", status="pending"),
]
NEVER = [
    JobFilter(job_type="none"), JobFilter(tenant="none"), JobFilter(priority="low"), JobFilter(q="none"),
    JobFilter(job_type="rare.type", status="done"), JobFilter(job_type="type.1", status="done"),
    JobFilter(priority="high", status="done"), JobFilter(tenant="few", status="done"),
    JobFilter(q="rare", status="done"),
]
OFTEN = [
    JobFilter(), JobFilter(status="pending"), JobFilter(status="done"), JobFilter(job_type="type.2"),
    JobFilter(priority="normal"), JobFilter(q="type.2"), JobFilter(q="aaaa"), JobFilter(q="Job"),
]


def rows_read(connection, wanted, after):
    """Return the number of rows that a page of ten reads, from Postgres's statistics."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": 10, "before": before, "before_id": before_id}
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + query("jobs/page_ids", newest=wanted.newest), values)
        [([plan],)] = cursor.fetchall()

    def count(node):
        mine = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) if "Scan" in node["Node Type"] else 0
        return mine * node["Actual Loops"] + sum(map(count, node.get("Plans", ())))

    return count(plan["Plan"])


@pytest.mark.parametrize("statistics", [False, True])
def test_rare_values_are_found_by_index(database_url, statistics):
    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute(MANY, (20_000,))
        cursor.execute(RARE)
        if statistics:
            cursor.execute("ANALYZE jobs")
            cursor.execute("ANALYZE recurring_jobs")
    connection = connect(database_url, "test", default_transaction_read_only="on")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT created_at, id FROM jobs WHERE tenant <> 'few' ORDER BY 1 OFFSET 50 LIMIT 1")
        [last] = cursor.fetchall()
    for wanted, after in itertools.product(SELDOM + NEVER, (None, last)):
        found = list_jobs(connection, wanted, 10, after)
        assert bool(found) == (wanted in SELDOM)
        assert rows_read(connection, wanted, after) <= 60, (wanted, after)
    for wanted, after in itertools.product(OFTEN if statistics else (), (None, last)):
        assert len(list_jobs(connection, wanted, 10, after)) >= 1
        # By id or name at most as many are looked at as are few, else a page's length of each status.
        most = 17_000 if wanted.q in ("aaaa", "Job") else 300
        assert rows_read(connection, wanted, after) <= most, (wanted, after)
    connection.close()


def test_an_emission_of_a_job_that_recurs_writes_into_the_claims_indexes_alone(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexrelname FROM pg_stat_user_indexes WHERE relname = 'jobs'")
        indexes = {name for name, in cursor}
        cursor.execute("""
            SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid
            WHERE indrelid = 'jobs'::regclass AND pg_get_expr(indpred, indrelid) LIKE '%rrule IS NULL%'""")
        lists = {name for name, in cursor}
    assert lists == {"jobs_listed", "jobs_listed_of_tenant", "jobs_listed_of_type", "jobs_listed_of_priority"}
    # Partial indexes: jobs that wait for a run, follow a zone's clock, have a calendar, or have skips to report.
    partial = {"jobs_held", "jobs_by_zone_rules", "jobs_of_calendar", "jobs_with_skips"}
    assert indexes - lists - partial == {"jobs_pkey", "jobs_due", "jobs_finished", "jobs_named", "jobs_refused"}


def test_recurring_jobs_has_only_pending_jobs_with_their_current_type(database_url):
    def noted():
        cursor.execute("SELECT job_type, priority::text FROM recurring_jobs")
        return cursor.fetchall()

    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute("INSERT INTO jobs (id, job_type, next_run_at, cron) "
                       "VALUES (gen_random_uuid(), 'first', '2099-01-01', '0 9 * * *')")
        assert noted() == [("first", None)]
        for change, expected in (
            ("job_type = 'second', priority = 'high'", [("second", "high")]), ("status = 'paused'", []),
            ("job_type = 'third'", []), ("status = 'pending'", [("third", "high")]), ("cron = NULL", []),
            ("every = '1 hour'", [("third", "high")]), ("next_run_at = '2099-01-02'", [("third", "high")]),
            ("status = 'done', next_run_at = NULL", []),
        ):
            cursor.execute(f"UPDATE jobs SET {change}")
            assert noted() == expected, change


def test_a_recurring_job_is_listed_in_every_status(database_url, connection):
    wanted = JobFilter(job_type="changing")

    def listed(status):
        return [row.job.id for row in list_jobs(connection, JobFilter(job_type="changing", status=status), 10)]

    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute("INSERT INTO jobs (id, job_type, next_run_at) "
                       "VALUES (gen_random_uuid(), 'changing', '2099-01-01') RETURNING id")
        [(job,)] = cursor.fetchall()
        for change in ("cron = '0 9 * * *'", "cron = NULL", "every = '1 hour'", "every = NULL, rrule = 'x'"):
            cursor.execute(f"UPDATE jobs SET {change} WHERE id = %s", (job,))
            assert listed("pending") == [row.job.id for row in list_jobs(connection, wanted, 10)] == [job]
        for status in ("paused", "pending", "done", "pending", "cancelled"):
            cursor.execute("UPDATE jobs SET status = %s WHERE id = %s", (status, job))
            assert listed(status) == [row.job.id for row in list_jobs(connection, wanted, 10)] == [job]
        cursor.execute("DELETE FROM jobs WHERE id = %s", (job,))
        cursor.execute("SELECT count(*) FROM recurring_jobs WHERE id = %s", (job,))
        assert cursor.fetchall() == [(0,)]


def test_runs_are_paged_and_read_by_index(database_url):
    with connected(database_url) as own, own.cursor() as cursor:
        cursor.execute("""
            INSERT INTO run_history
                (event_id, status, attempt, job_id, job_type, due_at, origin, finished_at, policy, event)
            SELECT gen_random_uuid(), 'succeeded', 1, gen_random_uuid(), 'a', now() - n / 5 * interval '1 minute',
                   'schedule', now() - n / 5 * interval '1 minute' + interval '1 second', '{}', '{}'
            FROM generate_series(1, 1500) AS n""")
        cursor.execute("ANALYZE run_history")
    connection = connect(database_url, "test")
    connection.autocommit = True
    try:
        seen, after = [], None
        while page := list_runs(connection, RunFilter(), 90, after):
            seen += [(run.occurrence.due_at, run.event_id) for run in page]
            after = seen[-1]
        assert len(seen) == len(set(seen)) == 1500
        assert seen == sorted(seen, reverse=True)
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")
            cursor.execute(f"EXPLAIN {run_lists._PAGE_IDS}", {
                "status": None, "job_id": None, "job_type": None, "tenant": None, "since": None, "until": None,
                "worker": None,
                "before": None, "before_id": None, "limit": 50,
            })
            assert "Seq Scan on run_history" not in "\n".join(line for line, in cursor)
    finally:
        connection.close()


def test_the_audit_is_merged_from_its_own_entries_and_from_jobs_made_over_amqp(connection, database_url):
    with connected(database_url) as own, own.cursor() as cursor:
        write_entries(cursor,
                      [AuditEntry(Caller("ann", Via.API), "pause", "job", str(n), "acme") for n in range(40)])
    seen, after = [], None
    while page := list_audit(connection, AuditFilter(), 333, after):
        seen += page
        after = (page[-1].at, page[-1].place)
    assert len({each.place for each in seen}) == len(seen) == COUNT + 40
    assert [each.at for each in seen] == sorted((each.at for each in seen), reverse=True)
    by_ann = list_audit(connection, AuditFilter(who="ann"), 100)
    assert {each.thing for each in by_ann} == {str(n) for n in range(40)}
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert list_audit(connection, AuditFilter(since=soon), 10) == []
