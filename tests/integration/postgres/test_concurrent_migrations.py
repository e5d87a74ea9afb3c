"""Migrations while the tables are in use: indexes created concurrently, and locks that block no client."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from support import connected, until

from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.postgres.migrate import migrate
from scheduler.postgres.migration_files import Migration, files
from scheduler.postgres.migration_plan import plan

NEXT = len(files()) + 1
INDEX = """-- Concurrently: a test's index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS test_index
    ON jobs (job_type) WHERE job_type <> 'a;b' -- a comment; with a semicolon
"""
JOB = "INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'test', now())"


def with_file(sql, number=NEXT):
    return [*files()[: number - 1], Migration(number, f"{number:04}_test.sql", sql)]


def ask(url, statement, *values):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def valid(url, index):
    return ask(url, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", index)


@contextmanager
def transaction_left_open(url, statement=JOB):
    """Another session that holds what `statement` locks, and its snapshot, until the end of the block."""
    with connected(url) as connection:
        connection.autocommit = False
        connection.cursor().execute(statement)
        yield
        connection.rollback()


def migrating(url):
    """Return the process of the session that migrates, once it waits for another one."""
    rows = ask(
        url, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND application_name = 'scheduler migrate'",
    )
    return rows[0][0] if rows else None


def test_an_index_is_made_while_others_write(database_url):
    with ThreadPoolExecutor(1) as pool:
        with transaction_left_open(database_url):
            done = pool.submit(migrate, database_url, with_file(INDEX))
            until(lambda: migrating(database_url), "it waits for the open transaction")
            with connected(database_url) as connection:
                connection.cursor().execute(JOB)  # and no client waits for it
        assert [each.version for each in done.result()] == [NEXT]
    assert valid(database_url, "test_index") == [(True,)]
    assert migrate(database_url, with_file(INDEX)) == []


def test_an_interrupted_index_build_is_repeated(database_url):
    with ThreadPoolExecutor(1) as pool, transaction_left_open(database_url):
        done = pool.submit(migrate, database_url, with_file(INDEX))
        pid = until(lambda: migrating(database_url), "it waits for the open transaction")
        ask(database_url, "SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(Unavailable):
            done.result()
    assert valid(database_url, "test_index") == [(False,)]
    migrate(database_url, with_file(INDEX))
    assert valid(database_url, "test_index") == [(True,)]


def test_concurrent_migrations_do_not_deadlock(database_url):
    """Creating an index waits for every snapshot, so a waiting session must hold none."""
    with ThreadPoolExecutor(4) as pool:
        with transaction_left_open(database_url):
            first = pool.submit(migrate, database_url, with_file(INDEX))
            until(lambda: migrating(database_url), "one waits for the open transaction")
            others = [pool.submit(migrate, database_url, with_file(INDEX)) for _ in range(3)]
            sessions = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'scheduler migrate'"
            )
            until(lambda: ask(database_url, sessions) == [(4,)], "the others wait")
        assert len(first.result()) == 1
        assert [other.result() for other in others] == [[], [], []]


def test_a_partitioned_table_gets_its_index_partition_by_partition(database_url):
    sql = "-- Concurrently: x.\nCREATE INDEX CONCURRENTLY IF NOT EXISTS test_history ON run_history (worker);"
    partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'run_history'::regclass"
    [(parts,)] = ask(database_url, partitions)
    with connected(database_url) as connection:  # as if it had crashed before the first was attached
        connection.cursor().execute("CREATE INDEX test_history_default ON run_history_default (worker)")
    migrate(database_url, with_file(sql))
    assert valid(database_url, "test_history") == [(True,)]
    attached = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'test_history'::regclass"
    assert ask(database_url, attached) == [(parts,)]
    ask(database_url, "SELECT make_run_partitions(15)")
    [(more,)] = ask(database_url, partitions)  # one, or two after midnight
    assert more > parts
    assert ask(database_url, attached) == [(more,)]


def test_an_index_is_dropped_concurrently(database_url):
    migrate(database_url, with_file(INDEX))
    drop = "-- Concurrently: no longer used.\nDROP INDEX CONCURRENTLY IF EXISTS test_index;"
    migrate(database_url, [*with_file(INDEX), Migration(NEXT + 1, "0099_drop.sql", drop)])
    assert valid(database_url, "test_index") == []


@pytest.mark.parametrize("statement", [
    "CREATE INDEX CONCURRENTLY again ON jobs (id)", "UPDATE jobs SET retries = 0", "DROP INDEX jobs_due",
])
def test_only_what_can_be_repeated_runs_outside_a_transaction(database_url, statement):
    with pytest.raises(Misconfigured, match=r"test\.sql says Concurrently.*only CREATE INDEX CONCURRENTLY IF NOT"):
        migrate(database_url, with_file(f"-- Concurrently: not so.\n{INDEX}; {statement}"))
    assert valid(database_url, "test_index") == []


def test_lock_waits_do_not_block_other_sessions(database_url, caplog):
    caplog.set_level("INFO")
    change = "-- A column.\nALTER TABLE jobs ADD COLUMN test_column text"
    with ThreadPoolExecutor(1) as pool:
        with transaction_left_open(database_url):
            done = pool.submit(migrate, database_url, with_file(change))
            until(lambda: "table is locked: retrying" in caplog.text, "it released its lock request once")
            with connected(database_url) as connection:
                connection.cursor().execute(JOB)  # behind a lock that is waited for, this would wait as well
            assert not done.done()
        assert len(done.result()) == 1
    assert ask(database_url, "SELECT test_column FROM jobs") == [(None,)]


def test_the_plan_has_effects_and_durations(database_url):
    with connected(database_url) as connection:
        connection.cursor().execute("UPDATE pg_class SET reltuples = 10000000 WHERE oid = 'jobs'::regclass")
    change = """-- A column; more to come.
        ALTER TABLE jobs ADD COLUMN test_column text; CREATE TABLE others (id int); CREATE INDEX o ON others (id);
        CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ UPDATE jobs SET retries = 0; $$; SELECT f()"""
    index = Migration(NEXT + 1, "0099_index.sql", INDEX)
    steps = plan(database_url, [*with_file(change), index])
    assert [step.migration.purpose for step in steps] == ["A column; more to come.", "a test's index."]
    assert [str(effect) for effect in steps[0].effects] == [
        "changes table jobs (10,000,000 rows, 0 MB): a brief lock, no rewrite: a moment",
        "creates table others: a moment", "creates index o on others, which blocks writes: a moment",
        "creates function f: a moment", "runs SELECT f(): a moment",
    ]
    assert [str(effect) for effect in steps[1].effects] == [
        "creates index test_index on jobs (10,000,000 rows, 0 MB) while it is in use: 22 s to 110 s"
    ]
    assert migrate(database_url, [*with_file(change), index]) == [step.migration for step in steps]
    assert plan(database_url, [*with_file(change), index]) == []
