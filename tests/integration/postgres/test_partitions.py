"""The history's partitions are kept while others read and write it."""

from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

import pytest
from support import connected, until

from scheduler.postgres.maintenance_queries import PARTITIONS_AHEAD, MaintenanceSession
from scheduler.processes.maintenance import Maintenance
from scheduler.processes.roles import ROLES
from scheduler.processes.runtime import Stop
from scheduler.resources import query
from scheduler.settings import Settings

OLD = "run_history_20200101"
LAST = f"run_history_{datetime.now(UTC) + timedelta(days=PARTITIONS_AHEAD):%Y%m%d}"


@pytest.fixture
def sql(database_url):
    """Run a statement in a separate transaction; one partition has expired and one is missing."""
    with connected(database_url) as connection, connection.cursor() as cursor:
        def run(statement, *values):
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        run("SET lock_timeout = '5s'")
        run(f"CREATE TABLE {OLD} PARTITION OF run_history FOR VALUES FROM ('2020-01-01Z') TO ('2020-01-02Z')")
        run(f"DROP TABLE {LAST}")
        yield run


@pytest.fixture
def other(database_url):
    """A cursor in a transaction that stays open."""
    with connected(database_url) as connection, connection.cursor() as cursor:
        connection.autocommit = False
        yield cursor
        connection.rollback()


@pytest.fixture
def sessions(database_url):
    with ExitStack() as stack:
        yield [stack.enter_context(closing(MaintenanceSession(database_url, f"test {n}"))) for n in range(2)]


def partitions(sql):
    return {name for name, in sql("SELECT inhrelid::regclass::text FROM pg_inherits "
                                  "WHERE inhparent = 'run_history'::regclass")}


def write(cursor):
    cursor.execute("INSERT INTO run_history (event_id, status, finished_at) "
                   "VALUES (gen_random_uuid(), 'dead', now())")


def test_a_partition_is_added_while_another_transaction_writes_to_the_history(sessions, sql, other):
    write(other)
    kept = sessions[0].keep_partitions(30)
    assert (kept.added, kept.dropped, kept.complete) == (1, 0, False)
    assert {LAST, OLD} <= partitions(sql)
    other.connection.rollback()
    kept = sessions[0].keep_partitions(30)
    assert (kept.added, kept.dropped, kept.complete) == (0, 1, True)
    assert OLD not in partitions(sql)


def test_a_partition_that_was_added_is_as_one_that_was_made_with_the_history(sessions, sql):
    sessions[0].keep_partitions(30)
    made = f"run_history_{datetime.now(UTC):%Y%m%d}"
    of_both = [sql("SELECT attname, atttypid::regtype::text, attnotnull, pg_get_expr(adbin, adrelid) "
                   "FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum "
                   "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname", name)
               for name in (LAST, made)]
    assert of_both[0] == of_both[1]
    parents = [sql("SELECT parent.inhparent::regclass::text FROM pg_index "
                   "JOIN pg_inherits AS parent ON parent.inhrelid = indexrelid "
                   "WHERE indrelid = %s::regclass AND indisvalid ORDER BY 1", name) for name in (LAST, made)]
    assert parents[0] == parents[1]
    assert len(parents[0]) >= 3


def test_an_open_reader_postpones_the_partitions_and_nothing_else(database_url, sql, other, monkeypatch):
    other.execute("SELECT count(*) FROM run_history")
    maintenance = Maintenance(ROLES["producer"], Settings(database_url=database_url), Stop(), None, 8000)
    assert maintenance.run_once()  # the heartbeat's session is kept
    assert LAST not in partitions(sql)
    asked = []
    monkeypatch.setattr("scheduler.postgres.maintenance_queries.query",
                        lambda name: asked.append(name) or query(name))
    assert maintenance.run_once()
    assert not [name for name in asked if "partition" in name], asked  # it backs off
    other.connection.rollback()
    maintenance._partitions_due = 0.0
    assert maintenance.run_once()
    assert LAST in partitions(sql)
    assert OLD not in partitions(sql)
    maintenance._leave()


def test_one_session_keeps_the_partitions_until_it_ends(sessions, sql):
    first, second = sessions
    assert first.keep_partitions(30).leads
    sql(f"DROP TABLE {LAST}")
    assert second.keep_partitions(30) == (0, 0, False, True)
    first.close()
    kept = until(lambda: (kept := second.keep_partitions(30)).leads and kept, "the server has ended the first")
    assert kept.added == 1


def test_each_function_waits_briefly_for_its_locks(sql):
    found = sql("SELECT proname::text FROM pg_proc WHERE 'lock_timeout=50ms' = ANY (proconfig)")
    assert sorted(found) == [("add_run_partition",), ("drop_run_partition",)]


def test_the_functions_of_the_previous_release_neither_wait_nor_fail(sql, other):
    other.execute("SELECT count(*) FROM run_history")
    sql("SELECT make_run_partitions(14)")
    assert sql("SELECT drop_run_partitions(30)") == [(0,)]
    other.connection.rollback()
    sql("SELECT make_run_partitions(14)")
    assert sql("SELECT drop_run_partitions(30)") == [(1,)]
    assert LAST in partitions(sql)
