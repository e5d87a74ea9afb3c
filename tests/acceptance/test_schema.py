"""The tables are in a separate Postgres schema; tables of release 0.2 stay in `public` until they are moved."""

import json
import secrets
import subprocess
import sys
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from support import DEADLINE, Host, Sidecar, connected, iso, until, utc

from scheduler.postgres.migration_files import files

RELEASE_0_2 = 14  # its last migration
OTHERS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)'"
# Everything that people could notice outside the schema, and settings of roles and databases.
OBJECTS = """
    SELECT 'relation', relnamespace::regnamespace::text, relname::text, relacl::text FROM pg_class
    UNION ALL SELECT 'function', pronamespace::regnamespace::text, proname::text, proacl::text FROM pg_proc
    UNION ALL SELECT 'type', typnamespace::regnamespace::text, typname::text, NULL FROM pg_type
    UNION ALL SELECT 'schema', '', nspname::text, nspacl::text FROM pg_namespace WHERE nspname !~ '^pg_.*temp'
    UNION ALL SELECT 'extension', '', extname::text, NULL FROM pg_extension
    UNION ALL SELECT 'setting', setdatabase::text, setrole::text, setconfig::text FROM pg_db_role_setting
    UNION ALL SELECT 'role', '', rolname::text, NULL FROM pg_roles
"""
FILES = ("SELECT relname, relfilenode FROM pg_class "
         "WHERE relkind IN ('r', 'i') AND relname ~ '^(jobs|run|audit|delayed|recur)'")
RAILS = "CREATE TABLE schema_migrations (version varchar PRIMARY KEY)"


@pytest.fixture
def url(stack, empty_database):
    """An empty database as a role without a schema of its name, so that SQL in tests reads `public`."""
    role, password = f"host_{secrets.token_hex(4)}", secrets.token_hex(8)
    with connected(stack.database_url) as connection:
        connection.cursor().execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{password}'")
    place = urlsplit(empty_database)
    yield place._replace(netloc=f"{role}:{password}@{place.netloc.rpartition('@')[2]}").geturl()
    stack.drop_database(empty_database)
    stack.create_database(urlsplit(empty_database).path.lstrip("/"))  # for the fixture to drop
    with connected(stack.database_url) as connection:
        connection.cursor().execute(f"DROP ROLE {role}")


def scheduler(url, *arguments, **environment):
    return subprocess.run([sys.executable, "-m", "scheduler", *arguments], env={"DATABASE_URL": url} | environment,
                          capture_output=True, text=True, check=False, timeout=DEADLINE)


def migrated(url, *arguments, **environment):
    done = scheduler(url, "migrate", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(url, statement):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def release_0_2(url):
    """Create a database of release 0.2: tables in `public`, and functions that use it."""
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, "
                       "checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())")
        for migration in files()[:RELEASE_0_2]:
            cursor.execute(migration.sql.replace("INDEX CONCURRENTLY", "INDEX"))
            cursor.execute("INSERT INTO schema_migrations VALUES (%s, %s, %s)",
                           (migration.version, migration.name, migration.checksum))
        cursor.execute("INSERT INTO jobs (id, job_type, next_run_at, every) SELECT gen_random_uuid(), 'old', "
                       "now() + interval '1 day', '1 day' FROM generate_series(1, 99)")


def sends_events(url, amqp_url, schema, **environment):
    """Run the sidecar: a one-shot, a recurring and a tracked job are emitted, and a finished run is archived."""
    host = Host(amqp_url)
    with closing(Sidecar(url, amqp_url)) as sidecar:
        sidecar.env |= environment
        sidecar.up()
        ids = [host.request(run_at=iso(utc()), **fields)
               for fields in ({}, {"every": 3600}, {"run": {"max_attempts": 1}})]
        events = host.due(3)
        assert {event["job_id"] for event in events} == set(ids)
        tracked = next(event for event in events if event.get("run"))
        host.publish("result", {"event_id": tracked["event_id"], "attempt": 1, "status": "succeeded"})
        finished = f'SELECT status::text FROM "{schema}".run_history WHERE job_id = \'{tracked["job_id"]}\''
        until(lambda: rows(url, finished) == [("succeeded",)], "the run is in the history")
        recurring = f'SELECT 1 FROM "{schema}".recurring_jobs WHERE id = \'{ids[1]}\''
        assert rows(url, recurring) == [(1,)]
        shown = scheduler(url, "job", "show", ids[0], "--json", **environment)
        assert json.loads(shown.stdout)["id"] == ids[0], shown.stderr
    host.close()


def test_all_objects_are_in_the_sidecars_schema(url, amqp_url):
    for statement in (RAILS, "CREATE TABLE jobs (mine text)", "INSERT INTO jobs VALUES ('as it was')",
                      "CREATE FUNCTION prune_audit(int, int) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0'"):
        rows(url, statement)
    before = set(rows(url, OBJECTS))
    migrated(url)
    sends_events(url, amqp_url, "scheduler")
    new = set(rows(url, OBJECTS)) ^ before
    assert {(schema or name).removesuffix("_toast") for kind, schema, name, _ in new
            if (kind, schema) not in {("relation", "pg_toast"), ("type", "pg_toast")}} == {"scheduler"}
    assert rows(url, "SELECT * FROM jobs") == [("as it was",)]
    assert migrated(url) == "the database is up to date\n"


def test_a_database_of_release_0_2_stays_and_is_moved_on_request(url, amqp_url):
    release_0_2(url)
    assert "0015" in migrated(url)
    assert rows(url, OTHERS) == [("public",)]
    sends_events(url, amqp_url, "public")

    before, objects = dict(rows(url, FILES)), set(rows(url, OBJECTS))
    assert "moved the tables from schema public to schema reminders" in migrated(
        url, "--move-to-schema", SCHEDULER_SCHEMA="reminders")
    assert dict(rows(url, FILES)) == before, "no table was rewritten"
    left = {row for row in set(rows(url, OBJECTS)) & objects if row[1] == "public"}
    assert left == set(), "all is moved"
    assert rows(url, "SELECT count(*) FROM reminders.jobs WHERE job_type = 'old'") == [(99,)]
    sends_events(url, amqp_url, "reminders", SCHEDULER_SCHEMA="reminders")
    assert rows(url, "SELECT reminders.add_run_partition(20)") == [(6,)], "the functions look there"
    assert migrated(url, "--move-to-schema", SCHEDULER_SCHEMA="reminders") == "the database is up to date\n"


@pytest.mark.parametrize(("statement", "table"), [
    (RAILS, "schema_migrations"), ("CREATE TABLE audit (x int)", "audit"), ("CREATE VIEW runs AS SELECT", "runs"),
])
def test_foreign_tables_are_left_alone(url, statement, table):
    rows(url, "CREATE SCHEMA reminders")
    rows(url, f"SET search_path = reminders; {statement}")
    before = rows(url, OBJECTS)
    done = scheduler(url, "migrate", SCHEDULER_SCHEMA="reminders")
    assert (done.returncode, f"reminders.{table}" in done.stderr) == (78, True), done.stderr
    assert rows(url, OBJECTS) == before


def test_a_move_does_not_mix_with_tables_of_others(url):
    release_0_2(url)
    rows(url, "CREATE SCHEMA reminders")
    rows(url, f"SET search_path = reminders; {RAILS}")
    before = rows(url, OBJECTS)
    done = scheduler(url, "migrate", "--move-to-schema", SCHEDULER_SCHEMA="reminders")
    assert (done.returncode, "reminders.schema_migrations" in done.stderr) == (78, True), done.stderr
    assert rows(url, OBJECTS) == before


@pytest.mark.parametrize("name", ["Scheduler", "a-b", "x" * 64, "pg_own", "information_schema", 'a"b'])
def test_invalid_schema_names_are_rejected(name):
    done = scheduler("postgresql://127.0.0.1:1/x", "migrate", SCHEDULER_SCHEMA=name)
    assert (done.returncode, "SCHEDULER_SCHEMA" in done.stderr) == (78, True)
