"""Logical replication of all tables to another server, and a move to it (docs/operating.md).

`make upgrade FROM=trixie TO=sid` runs it between two versions of Postgres.
"""

import os
import subprocess
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest
from support import Sidecar, iso, patiently, until, utc

from scheduler.dev.servers import databases, roots
from scheduler.dev.servers.binaries import find_postgres
from scheduler.dev.servers.postgres import PostgresServer
from scheduler.postgres.maintenance_queries import MaintenanceSession
from scheduler.postgres.migrate import migrate

# Postgres finds a row to delete by a key, or else by comparing all columns, which it cannot for the type json.
ADD_KEY = "ALTER TABLE scheduler.run_history ADD PRIMARY KEY (event_id, finished_at)"
DROP_KEY = """
    ALTER TABLE scheduler.run_history DROP CONSTRAINT run_history_pkey, ALTER COLUMN finished_at DROP NOT NULL
"""
COPIED = "SELECT count(*) FILTER (WHERE srsubstate <> 'r'), count(*) FROM pg_subscription_rel"
TABLES = """
    SELECT quote_ident(relname) FROM pg_class
    WHERE relnamespace = 'scheduler'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    ORDER BY relname
"""
SEQUENCES = ("SELECT sequencename, last_value FROM pg_sequences "
             "WHERE schemaname = 'scheduler' AND last_value IS NOT NULL")


class Server:
    """A Postgres server with the database `scheduler`."""

    def __init__(self, postgres):
        self.postgres = postgres
        self.url = databases.create(postgres.url, "scheduler", None)

    def sql(self, statement, *values):
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def contents(self):
        """Return the number of rows and a checksum of each table."""
        return {table: self.sql(f"SELECT count(*), md5(string_agg(rows::text, ';' ORDER BY rows::text)) "
                                f"FROM scheduler.{table} AS rows")
                for table, in self.sql(TABLES)}


@contextmanager
def server(stack, name, variable):
    suite = os.environ.get(variable)
    root = roots.chosen({roots.VARIABLE: suite}) if suite else None
    programs = roots.postgres_programs(root) if root else find_postgres()
    postgres = PostgresServer(stack.ledger, programs, name=name, fast=True, settings={"wal_level": "logical"})
    postgres.start()
    try:
        yield Server(postgres), Path(programs)
    finally:
        postgres.kill()


def copy_schema(programs, source, target):
    dumped = subprocess.run(
        [programs / "pg_dump", "--schema-only", "--no-publications", "--no-subscriptions", source.url],
        check=True, capture_output=True, text=True,
    ).stdout
    subprocess.run([programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", target.url], input=dumped, check=True,
                   text=True, capture_output=True)


@contextmanager
def running(url, amqp_url):
    """Run the sidecar on a database; each process must end without an error."""
    sidecar = Sidecar(url, amqp_url)
    try:
        yield sidecar.up()
    finally:
        codes = sidecar.close()
    assert set(codes) == {0}


class TrackedJob:
    """A job whose run fails, is dead, and succeeds after a retry."""

    def __init__(self, host, database):
        self._host, self._database = host, database
        self.id = host.request(run_at=iso(utc()), job_type="tracked", run={"max_attempts": 1})

    def report(self, status, stored):
        event = until(lambda: next((due for due in self._host.due() if due["job_id"] == self.id), None), "the run")
        event_id, attempt = event["event_id"], event["run"]["attempt"]
        self._host.publish("result", {"event_id": event_id, "attempt": attempt, "status": status})
        ended = "SELECT 1 FROM scheduler.run_history WHERE event_id = %s AND status::text = %s"
        until(lambda: self._database.sql(ended, event_id, stored), stored)
        return event_id


def test_a_database_moves_to_another_server_by_logical_replication(stack, host, amqp_url):
    if stack.postgres is None:
        pytest.skip("needs Postgres's programs")
    with server(stack, "old-server", "FROM") as (old, _), server(stack, "new-server", "TO") as (new, programs):
        patiently(lambda: migrate(old.url))
        with running(old.url, amqp_url):
            recurring = host.request(every=1, run_at=iso(utc()), job_type="recurring")
            tracked = TrackedJob(host, old)
            event_id = tracked.report("failed", "dead")

            copy_schema(programs, old, new)
            new.sql(ADD_KEY)
            old.sql("CREATE PUBLICATION upgrade FOR ALL TABLES WITH (publish_via_partition_root = true)")
            new.sql(f"CREATE SUBSCRIPTION upgrade CONNECTION '{old.url}' PUBLICATION upgrade")
            until(lambda: (states := new.sql(COPIED)[0])[0] == 0 and states[1] > 0, "the initial copy")

            host.publish("retry", {"event_id": event_id})  # moves the run out of the history
            assert tracked.report("succeeded", "succeeded") == event_id
            old.sql("INSERT INTO scheduler.jobs (id, job_type, status, finished_at) "
                    "VALUES (gen_random_uuid(), 'old', 'done', now() - interval '40 days')")
            with closing(MaintenanceSession(old.url, "test")) as session:
                assert session.prune(30, 100) == 1

        contents = old.contents()
        until(lambda: new.contents() == contents, "the new server to have everything")
        assert contents["run_history"][0][0] == 1
        for sequence, value in old.sql(SEQUENCES):
            new.sql("SELECT setval(%s, %s)", f"scheduler.{sequence}", value)
        new.sql("DROP SUBSCRIPTION upgrade")
        new.sql(DROP_KEY)

        [(emitted,)] = new.sql("SELECT occurrence FROM scheduler.jobs WHERE id = %s", recurring)
        with running(new.url, amqp_url):
            reached = "SELECT 1 FROM scheduler.jobs WHERE id = %s AND status::text = %s"
            emitted_again = "SELECT 1 FROM scheduler.jobs WHERE id = %s AND occurrence > %s"
            until(lambda: new.sql(emitted_again, recurring, emitted), "the recurring job to go on")
            again = host.request(run_at=iso(utc()), job_type="after the move")
            host.publish("cancel", {"id": recurring})
            until(lambda: new.sql(reached, recurring, "cancelled"), "the cancel")
            until(lambda: new.sql(reached, again, "done"), "a new job")
            assert new.sql("SELECT 1 FROM scheduler.audit WHERE thing = %s AND action = 'cancel'", recurring)
