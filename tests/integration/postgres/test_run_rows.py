"""Runs as rows: the domain and the tables agree; claims use their index; old history is dropped by day."""

import json
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from support import DEADLINE, connected

from scheduler.commands.apply_results import record_results
from scheduler.commands.decide_commands import decide_result
from scheduler.domain.messages import Priority, ResultStatus, RunPolicy
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import (
    IDLE_SECONDS,
    AttemptOutcome,
    FinishedAttempt,
    Occurrence,
    Origin,
    Run,
    RunEnd,
    RunStatus,
)
from scheduler.postgres.claims import PLANNER, ClaimSession
from scheduler.postgres.connection import connect
from scheduler.postgres.console_queries import watched_runs
from scheduler.postgres.maintenance_queries import MaintenanceSession, Partitions
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM, ClassShares
from scheduler.postgres.runs.columns import KEPT, STORED, write_changing
from scheduler.postgres.runs.due import CLAIM, record
from scheduler.postgres.runs.lists import PAGE, RunFilter, list_runs
from scheduler.postgres.runs.store import lock, lock_finished, lock_for_result, save
from scheduler.postgres.wakeup import Wakeup
from scheduler.resources import query
from scheduler.views.runs import run_view

T = datetime(2026, 12, 1, 8, 30, 15, 123456, tzinfo=UTC)


def whole():
    """A run that leaves no column empty."""
    event_id = str(uuid4())
    policy = RunPolicy(backoff=(1, 2.5), overlap="wait")
    about = Occurrence(str(uuid4()), "t\t\\N", T, Origin.TRIGGER, policy, '{"a": 1.10}', "c", "p", "s", "a.tenant",
                       Priority.HIGH, "a.route", "command.x")
    ended = FinishedAttempt(1, AttemptOutcome.LOST, "w", T, T, "why", '{"x":1}', output_cut=True)
    early = Result(event_id, 2, ResultStatus.FAILED, "no", "[1]", True, False, 5.0, 6.0, 0.5, "w", "t", T, T)
    announced_later = RunEnd(
        RunStatus.DEAD, 1, 1, T, T, T, T, AttemptOutcome.FAILED, "e", '{"x":1}', output_cut=True
    )
    return Run(
        event_id, RunStatus.RUNNING, 2, 1, T, T, T, T, T, T, "w\n", 0.25, "e\\", '["o"]', True, (ended,), "2 x", T,
        (early,), T, 7, (announced_later,), "producer-1", about,
    )


@pytest.fixture
def cursor(database_url):
    connection = connect(database_url, "test")
    with connection.cursor() as opened:
        yield opened
    connection.rollback()
    connection.close()


def test_a_retry_wakes_producers_that_skip_an_empty_runs_table(database_url):
    """With a poll interval of half a second they would have polled without a wake-up."""
    run = replace(whole(), early=(), decided_by=None)
    with closing(connect(database_url, "test")) as connection, closing(Wakeup(database_url, "listening")) as woken:
        with connection.cursor() as opened:
            save(opened, {}, {}, {run.event_id: run})
        connection.commit()
        failed = Result(run.event_id, run.attempt, ResultStatus.FAILED, retry_in=IDLE_SECONDS - 0.5)
        assert record_results(connection, [failed], timedelta(seconds=0.6)) == ["recorded"]
        assert "runs" in woken.wait(DEADLINE)


@pytest.mark.parametrize("status", [RunStatus.DELIVERED, RunStatus.RUNNING, RunStatus.WAITING])
def test_unfetched_columns_do_not_affect_results(cursor, status):
    """Several results of several runs, compared by some of their columns and by all."""
    runs = [replace(whole(), status=status, early=(), decided_by=None) for _ in ResultStatus]
    save(cursor, {}, {}, {run.event_id: run for run in runs})
    ids = [run.event_id for run in runs]
    ended = [locked(cursor, ids) for locked in (lock, lock_for_result)]
    for known in ended:
        for run, said in zip(runs, ResultStatus, strict=True):
            for each in (ResultStatus.RUNNING, said):
                result = Result(run.event_id, 2, each, "why", "[1]", retry_in=3.0, worker="w", tenant="a.tenant")
                assert decide_result(known, result, T) in ("recorded", "unchanged", "superseded")
    by_all, by_a_part = ([write_changing(known[each]) for each in ids] for known in ended)
    assert by_a_part == by_all
    assert by_all != [write_changing(run) for run in runs]


def test_results_of_many_runs_are_stored_together_as_each_alone(database_url):
    runs = [replace(whole(), early=(), decided_by=None) for _ in range(6)]
    said = [ResultStatus.RUNNING, ResultStatus.SUCCEEDED, ResultStatus.FAILED] * 2
    results = [Result(run.event_id, 2, status, "why", f'"{status}"', retry_in=3600.0, worker="another")
               for run, status in zip(runs, said, strict=True)]
    with closing(connect(database_url, "test")) as connection, connection.cursor() as opened:
        save(opened, {}, {}, {run.event_id: run for run in runs})
        connection.commit()
        told = record_results(connection, [*results[:3], results[0]], timedelta(0))
        for result in (*results[3:], results[3]):
            told += record_results(connection, [result], timedelta(0))
        assert told[:4] == told[4:]
        found = lock(opened, [run.event_id for run in runs])
        together, alone = (
            [[getattr(found[run.event_id], name) for name in ("status", "attempt", "error", "output", "worker")]
             for run in part] for part in (runs[:3], runs[3:])
        )
        assert together == alone
        assert [each[0] for each in together] == [RunStatus.RUNNING, RunStatus.SUCCEEDED, RunStatus.WAITING]


def test_an_unencodable_result_is_rejected_alone(latin1_database):
    """If it were stored once, it could not be stored again when the run continues."""
    with closing(connect(latin1_database, "test")) as connection:
        runs = [replace(whole(), early=()) for _ in range(2)]
        with connection.cursor() as opened:
            save(opened, {}, {}, {run.event_id: run for run in runs})
        connection.commit()
        for run, word, stored in zip(runs, ("caf\\u00e9", "\\u20ac"), (True, False), strict=True):
            result = Result(run.event_id, run.attempt, ResultStatus.RUNNING, output=f'"{word}"')
            [verdict] = record_results(connection, [result], timedelta(0))
            assert (verdict == "recorded") is stored, verdict


@pytest.mark.parametrize(("table", "columns"), [("runs", STORED), ("run_history", KEPT)])
def test_the_tables_have_exactly_these_columns(database_url, table, columns):
    with connected(database_url) as connection, connection.cursor() as opened:
        opened.execute("SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,))
        assert {name for name, in opened.fetchall()} == set(columns)


def test_a_column_that_is_left_out_of_a_copy_is_null(database_url):
    with connected(database_url) as connection, connection.cursor() as opened:
        opened.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'runs' "
                       "AND is_nullable = 'YES' AND column_default IS NOT NULL")
        assert opened.fetchall() == [("tenant",)]  # which every run has that is recorded


def test_runs_of_different_shapes_are_recorded_together(database_url):
    about = Occurrence(str(uuid4()), "t", T, Origin.SCHEDULE, RunPolicy(), "{}")
    plain = Run(str(uuid4()), RunStatus.DELIVERED, 1, 1, T, T, occurrence=about)
    runs = {run.event_id: run for run in (plain, whole(), whole())}
    with closing(ClaimSession(database_url, "test")) as session:
        session.query("BEGIN", {})
        assert record(session, list(runs.values())) == {}
        session.settle([])
    with connected(database_url) as connection, connection.cursor() as opened:
        assert lock(opened, list(runs)) == runs


def test_runs_that_change_in_different_ways_are_saved_together(cursor):
    first, second = whole(), whole()
    save(cursor, {}, {}, {run.event_id: run for run in (first, second)})
    known = lock(cursor, [first.event_id, second.event_id])
    after = {
        first.event_id: replace(known[first.event_id], error=None, progress=0.75),
        second.event_id: replace(known[second.event_id], status=RunStatus.SUCCEEDED, output=None),
    }
    save(cursor, known, {}, after)
    assert lock(cursor, list(known)) == after


def test_a_run_comes_back_as_it_was_stored_and_a_change_writes_what_changes(cursor):
    run = whole()
    save(cursor, {}, {}, {run.event_id: run})
    assert lock(cursor, [run.event_id]) == {run.event_id: run}
    changed = replace(run, status=RunStatus.WAITING, error=None, attempts=(), early=(), retry_at=T + timedelta(1))
    save(cursor, {run.event_id: run}, {}, {run.event_id: changed})
    assert lock(cursor, [run.event_id]) == {run.event_id: changed}


def finished_run(cursor, **changes):
    """Put a run into the history."""
    ended = {"early": (), "noted_at": None, "unannounced": None, "finished_at": datetime.now(UTC)}
    run = replace(whole(), **ended | changes)
    save(cursor, {}, {}, {run.event_id: run})
    cursor.execute(query("runs/archive", kept=", ".join(KEPT)), {"ids": f"{{{run.event_id}}}"})
    return run


def test_a_finished_run_with_an_unchanged_end_stays_in_the_history(cursor):
    run = finished_run(cursor, status=RunStatus.CANCELLED)
    ended = FinishedAttempt(2, AttemptOutcome.FAILED, "w", None, T, "late", None)
    after = replace(run, attempts=(*run.attempts, ended), counted=2, decided_by="2 y", error="late", output=None,
                    output_cut=False, worker="v", started_at=None)
    save(cursor, {}, {run.event_id: run}, {run.event_id: after})
    assert lock(cursor, [run.event_id]) == {}
    assert lock_finished(cursor, [run.event_id]) == {run.event_id: after}


@pytest.mark.parametrize("output", ["1", '"' + "".join(str(uuid4()) for _ in range(1500)) + '"'])
def test_a_list_and_its_live_rows_show_the_same_duration(cursor, database_url, output):
    """Also of a worker that reports no times; attempts with a large output are not read for a list."""
    now = datetime.now(UTC)
    times = {"emitted_at": now - timedelta(seconds=7), "started_at": None, "finished_at": now}
    attempts = [
        FinishedAttempt(1, AttemptOutcome.FAILED, "w", T, T + timedelta(hours=1), "no", None),
        FinishedAttempt(2, AttemptOutcome.SUCCEEDED, "w", None, now, None, output),
    ]
    run = finished_run(cursor, status=RunStatus.SUCCEEDED, attempts=tuple(attempts), **times)
    cursor.connection.commit()
    with connected(database_url) as connection:
        [listed] = list_runs(connection, RunFilter(), 10)
        live = watched_runs(connection, rows=[run.event_id]).rows[run.event_id]
        newest = watched_runs(connection, newest=True).newest
    assert [run_view(each).duration_ms for each in (listed, live, *newest)] == [7000, 7000, 7000]


def test_a_finished_run_moves_back_among_the_open_ones_when_it_changes(cursor):
    run = finished_run(cursor, status=RunStatus.DEAD)
    assert lock(cursor, [run.event_id]) == {}
    finished = lock_finished(cursor, [run.event_id])
    assert finished == {run.event_id: run}
    again = replace(run, status=RunStatus.WAITING)
    save(cursor, {}, finished, {run.event_id: again})
    assert lock(cursor, [run.event_id]) == {run.event_id: again}
    assert lock_finished(cursor, [run.event_id]) == {}


@pytest.mark.parametrize("statistics", [False, True])
def test_the_claim_walks_its_index_and_sorts_nothing(database_url, statistics):
    with connected(database_url) as connection, connection.cursor() as opened:
        opened.execute("INSERT INTO runs (event_id, status, wake_at) SELECT gen_random_uuid(), 'delivered', "
                       "now() + (n - 500) * interval '1 second' FROM generate_series(1, 20000) n")
        if statistics:
            opened.execute("ANALYZE runs")
        for setting, value in PLANNER.items():
            opened.execute("SELECT set_config(%s, %s, false)", (setting, value))
        opened.execute(query("claims/prepare", kind="runs", claim=CLAIM.statement))
        values = (*FROM_THE_BOTTOM, *ClassShares.of(100))
        opened.execute(f"EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS) EXECUTE claim_runs "
                       f"({', '.join(['%s'] * len(values))})", values)
        found = json.dumps(opened.fetchone()[0])
    assert '"Index Name": "runs_due"' in found
    for forbidden in ("Seq Scan", "Bitmap", '"Sort"'):
        assert forbidden not in found


@pytest.mark.parametrize("wanted", [{}, {"status": "succeeded"}, {"before": True}])
def test_a_page_of_runs_reads_no_more_of_a_long_history_than_it_shows(database_url, wanted):
    names = ("status", "job_id", "job_type", "tenant", "since", "until", "worker", "before", "before_id")
    values = dict.fromkeys(names) | wanted | {"limit": 50}
    if wanted.get("before"):
        values |= {"before": datetime.now(UTC) + timedelta(hours=12), "before_id": str(uuid4())}
    with connected(database_url) as connection, connection.cursor() as opened:
        opened.execute("INSERT INTO run_history (event_id, job_id, job_type, origin, status, due_at, finished_at) "
                       "SELECT gen_random_uuid(), gen_random_uuid(), 'a', 'schedule', 'succeeded', at, at "
                       "FROM generate_series(1, 6000) n, LATERAL (SELECT now() + n * interval '20 s') moment (at)")
        opened.execute("ANALYZE run_history")
        opened.execute(f"EXPLAIN (FORMAT JSON, ANALYZE) {PAGE}", values)
        [plan] = opened.fetchone()[0]
    parts = [node for node in nodes(plan["Plan"]) if node.get("Relation Name", "").startswith("run_history_2")]
    assert len(parts) > 1
    assert {node["Node Type"] for node in parts} == {"Index Scan"}
    assert sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in parts) <= 50 + len(parts)


@pytest.mark.parametrize("wanted", [{}, {"status": "delivered"}, {"before": True}])
def test_a_page_of_runs_reads_no_more_of_those_open_than_it_shows(database_url, wanted):
    names = ("status", "job_id", "job_type", "tenant", "since", "until", "worker", "before", "before_id")
    values = dict.fromkeys(names) | wanted | {"limit": 50}
    if wanted.get("before"):
        values |= {"before": datetime.now(UTC) + timedelta(hours=12), "before_id": str(uuid4())}
    with connected(database_url) as connection, connection.cursor() as opened:
        opened.execute("INSERT INTO runs (event_id, status, due_at) SELECT gen_random_uuid(), 'delivered', "
                       "now() + n * interval '20 s' FROM generate_series(1, 6000) n")
        opened.execute("ANALYZE runs")
        opened.execute(f"EXPLAIN (FORMAT JSON, ANALYZE) {PAGE}", values)
        [plan] = opened.fetchone()[0]
    [scan] = [node for node in nodes(plan["Plan"]) if node.get("Relation Name") == "runs"]
    assert scan["Index Name"] == "runs_newest"
    assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) <= 51


def nodes(plan):
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def test_partitions_are_made_ahead_and_dropped_when_they_are_old(database_url):
    def partitions(opened):
        opened.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'run_history'::regclass"
        )
        return {name for name, in opened.fetchall()}

    session = MaintenanceSession(database_url, "producer")
    session.keep_partitions(30)  # the template may have been made before midnight
    with connected(database_url) as connection, connection.cursor() as opened:
        opened.execute("CREATE TABLE run_history_20200101 PARTITION OF run_history "
                       "FOR VALUES FROM ('2020-01-01Z') TO ('2020-01-02Z')")
        opened.execute("INSERT INTO run_history (event_id, status, finished_at) VALUES "
                       "(gen_random_uuid(), 'dead', '2020-01-01 12:00Z'), "
                       "(gen_random_uuid(), 'dead', '2019-01-01Z'), (gen_random_uuid(), 'dead', now())")
        assert session.keep_partitions(30) == Partitions(0, 1, leads=True)
        assert session.keep_partitions(30) == Partitions(0, 0, leads=True)
        opened.execute("SELECT count(*) FROM run_history")
        assert opened.fetchone() == (1,)
        names = partitions(opened)
        assert "run_history_20200101" not in names
        opened.execute("SELECT 'run_history_' || to_char(now() AT TIME ZONE 'UTC' + n * interval '1 day', "
                       "'YYYYMMDD') FROM generate_series(0, 13) n")
        assert {name for name, in opened.fetchall()} <= names
    session.close()
