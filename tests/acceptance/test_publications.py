"""A publication for all tables, as Debezium and logical upgrades create it, disturbs nothing."""

from contextlib import closing

import pytest
from support import connected, iso, until, utc

from scheduler.postgres.maintenance_queries import MaintenanceSession

# Tables whose rows cannot be updated or deleted while they are published.
WITHOUT_IDENTITY = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p') AND relreplident <> 'f'
      AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)
"""


@pytest.fixture
def published(sidecar):
    """The database, with a publication; one partition is missing."""
    with connected(sidecar.database_url) as connection, connection.cursor() as cursor:
        def run(statement, *values):
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        [(last,)] = run("SELECT max(inhrelid::regclass::text) FROM pg_inherits "
                        "WHERE inhparent = 'run_history'::regclass AND inhrelid::regclass::text ~ '[0-9]$'")
        run(f"DROP TABLE {last}")
        run("CREATE PUBLICATION everything FOR ALL TABLES")
        yield run


def test_every_table_has_a_replica_identity_and_so_has_a_new_partition(sidecar, published):
    [(schema,)] = published("SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'jobs'::regclass")
    with closing(MaintenanceSession(sidecar.database_url, "test")) as session:
        assert session.keep_partitions(30).added == 1
    assert published(WITHOUT_IDENTITY, schema) == []


def test_runs_are_settled_replayed_and_pruned(sidecar, host, published):
    sidecar.up()
    host.request(run_at=iso(utc()), run={"max_attempts": 1})

    def finish(reported, expected):
        [event] = host.due()
        event_id = event["event_id"]
        host.publish("result", {"event_id": event_id, "attempt": event["run"]["attempt"], "status": reported})
        until(lambda: published("SELECT status::text FROM run_history WHERE event_id = %s", event_id)
              == [(expected,)], f"the run to be {expected}")
        return event_id

    event_id = finish("failed", "dead")
    host.publish("retry", {"event_id": event_id})  # moves the run out of the history
    assert finish("succeeded", "succeeded") == event_id
    host.request(run_at=iso(utc()))
    host.due()
    until(lambda: published("SELECT status FROM jobs WHERE status <> 'done'") == [], "the jobs to be settled")
    published("UPDATE jobs SET finished_at = now() - interval '40 days'")
    with closing(MaintenanceSession(sidecar.database_url, "test")) as session:
        assert session.prune(30, 100) == 2
