"""`scheduler run list|show|retry|export` on a real database."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from support import DEADLINE, connected

from scheduler.domain.messages import RunPolicy
from scheduler.domain.runs.run import AttemptOutcome, FinishedAttempt, Occurrence, Origin, Run, RunStatus
from scheduler.postgres.runs.columns import KEPT, STORED
from scheduler.postgres.runs.lists import RunFilter as Filter
from scheduler.postgres.runs.lists import list_runs as list_with
from scheduler.postgres.runs.report import export_runs, find_run
from scheduler.postgres.runs.store import INSERT, records
from scheduler.resources import query

DUE = datetime(2026, 12, 1, 8, tzinfo=UTC)
ARCHIVE = query("runs/archive", kept=", ".join(KEPT))


def after(seconds):
    return DUE + timedelta(seconds=seconds)


def a_run(due=0, status="dead", **changed):
    policy = RunPolicy(max_attempts=1)
    occurrence = Occurrence(str(uuid4()), "invoice.reminder", after(due), Origin.TRIGGER, policy, "{}")
    ended = FinishedAttempt(
        1, AttemptOutcome.FAILED, "w1", after(due + 1), after(due + 2), "no such card", '{"code": 7}'
    )
    fields = {"attempt": 1, "counted": 1, "emitted_at": after(due), "finished_at": after(due + 2),
              "error": "no such card", "worker": "w1", "attempts": (ended,), "occurrence": occurrence}
    return Run(str(uuid4()), RunStatus(status), **fields | changed)


@pytest.fixture
def store_runs(database_url):
    """Store runs, and move finished runs to the history."""
    def store(*runs):
        with connected(database_url) as connection, connection.cursor() as cursor:
            # Insert rows directly: `save` ignores new runs that are in the history.
            cursor.execute(INSERT, {"runs": records(runs, STORED)})
            cursor.execute(ARCHIVE, {"ids": "{" + ",".join(run.event_id for run in runs if not run.open) + "}"})
        return runs

    return store


def scheduler(database_url, *arguments):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_", "AMQP_"))}
    return subprocess.run(
        [sys.executable, "-m", "scheduler", "run", *arguments], env=clean | {"DATABASE_URL": database_url},
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )


def list_runs(url, filters, limit):
    with connected(url) as connection:
        return list_with(connection, filters, limit)


def ids(runs):
    return [run.event_id for run in runs]


def test_open_and_finished_runs_are_listed_together_newest_due_first(database_url, store_runs):
    runs = store_runs(*(a_run(due=n, status="dead" if n % 2 else "waiting", retry_at=None if n % 2 else after(60),
                       finished_at=after(n + 2) if n % 2 else None) for n in range(6)))
    store_runs(Run(str(uuid4()), RunStatus.EXPECTED, noted_at=DUE))
    newest_first = list(reversed(runs))
    assert list_runs(database_url, Filter(), 50) == newest_first
    assert ids(list_runs(database_url, Filter(), 3)) == ids(newest_first[:3])
    assert ids(list_runs(database_url, Filter(status="dead"), 50)) == ids(newest_first[::2])
    assert ids(list_runs(database_url, Filter(since=after(1), until=after(4)), 50)) == ids(newest_first[2:5])
    for one in runs[:2]:
        assert ids(list_runs(database_url, Filter(job_id=one.occurrence.job_id), 50)) == [one.event_id]
    assert list_runs(database_url, Filter(job_type="another"), 50) == []
    assert len(list_runs(database_url, Filter(job_type="invoice.reminder"), 50)) == 6


def test_a_report_has_the_run_and_whether_its_end_was_published(database_url, store_runs):
    dead, waiting = store_runs(a_run(), a_run(status="waiting", retry_at=after(60), finished_at=None))
    run = find_run(database_url, dead.event_id)
    assert (run.run, run.announced, run.producers) == (dead, True, 0)
    run = find_run(database_url, waiting.event_id)
    assert (run.run, run.announced) == (waiting, False)
    assert find_run(database_url, uuid4()) is None


def test_an_open_run_precedes_its_history_and_newer_entries_precede_older(database_url, store_runs):
    old = a_run()
    store_runs(old)
    newer, opened = replace(old, finished_at=after(10)), replace(old, status=RunStatus.WAITING, finished_at=None)
    store_runs(newer)
    assert find_run(database_url, old.event_id).run == newer
    store_runs(opened)
    assert find_run(database_url, old.event_id).run == opened


def test_an_event_of_an_untracked_job_is_read(database_url):
    event = str(uuid4())
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO run_history "
            "(event_id, status, attempt, job_id, job_type, due_at, origin, emitted_at, finished_at) "
            "VALUES (%s, 'emitted', 1, gen_random_uuid(), 't', now(), 'schedule', now(), now())", [event])
    done = scheduler(database_url, "show", event)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the outcome is unknown" in done.stdout
    done = scheduler(database_url, "list", "--status", "emitted", "--json")
    [values] = json.loads(done.stdout)
    assert (values["event_id"], values["max_attempts"], values["duration_ms"]) == (event, None, None)


def test_an_export_has_all_runs_finished_in_the_span(database_url, store_runs):
    runs = store_runs(*(a_run(due=n) for n in range(250)))
    store_runs(a_run(status="waiting", retry_at=after(60), finished_at=None))
    assert list(export_runs(database_url, after(2), after(252))) == list(runs)
    done = scheduler(
        database_url, "export", "--since", after(3).isoformat(), "--until", after(251).isoformat(), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event_id"] for line in lines] == ids(runs[1:249])
    assert lines[0]["attempts"][0]["output"] == {"code": 7}


def test_an_export_into_a_directory_is_by_day_and_can_be_resumed(database_url, store_runs, tmp_path):
    """The days are long past; the span ends within the last one."""
    day = 86_400
    past = -3650 * day
    runs = store_runs(*(a_run(due=past + n * day // 2) for n in range(5)))
    span = ("--since", after(past - 8 * 3600).isoformat(), "--until", after(past + 2 * day).isoformat())

    def export(*more):
        done = scheduler(database_url, "export", *span, "--directory", str(tmp_path / "archive"), *more)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def read(name):
        return [json.loads(line)["event_id"] for line in gzip.open(tmp_path / "archive" / name, "rt")]

    first, second, third = (f"{after(past + n * day):%Y-%m-%d}" for n in range(3))
    written = [json.loads(line) for line in export("--gzip", "--json")]
    names = [f"{first}.jsonl.gz", f"{second}.jsonl.gz", f"{third}.partial.jsonl.gz"]
    assert [Path(each["file"]).name for each in written] == names
    assert [each["runs"] for each in written] == [2, 2, 0]
    assert read(names[0]) + read(names[1]) == ids(runs[:4])
    (tmp_path / "archive" / names[1]).unlink()
    lines = export("--gzip")
    assert [line.rpartition("/")[2] for line in lines] == [f"{names[1]}: 2 runs", f"{names[2]}: 0 runs"]
    span = (*span[:3], after(past + 3 * day).isoformat())
    assert next(line.rpartition("/")[2] for line in export("--gzip")) == f"{third}.jsonl.gz: 1 runs"
    assert sorted(path.name for path in (tmp_path / "archive").iterdir())[:3] == [*names[:2], f"{third}.jsonl.gz"]
    assert scheduler(database_url, "export", *span, "--gzip").returncode == 1


def test_the_commands_print_text_or_json(database_url, store_runs):
    [dead] = store_runs(a_run())
    done = scheduler(database_url, "show", dead.event_id.upper())
    assert (done.returncode, done.stderr) == (0, "")
    assert "Dead since 2026-12-01T08:00:02.000000Z: it had one attempt." in done.stdout
    values = json.loads(scheduler(database_url, "show", dead.event_id, "--json").stdout)
    assert (values["status"], values["attempts"][0]["error"]) == ("dead", "no such card")
    done = scheduler(database_url, "list", "--job", dead.occurrence.job_id, "--limit", "1")
    assert dead.event_id in done.stdout.splitlines()[1]
    assert scheduler(database_url, "list", "--job-type", "x").stdout == "No matching runs.\n"
    assert scheduler(database_url, "list", "--job-type", "x", "--json").stdout == "[]\n"


def test_a_dead_run_is_retried_once(database_url, store_runs):
    [dead] = store_runs(a_run())
    done = scheduler(database_url, "retry", dead.event_id)
    assert (done.returncode, done.stdout, done.stderr) == (0, "scheduled: attempt 2 is due now\n", "")
    found = find_run(database_url, dead.event_id).run
    assert (found.status, found.counted, found.attempts) == (RunStatus.WAITING, 0, dead.attempts)
    done = scheduler(database_url, "retry", dead.event_id)
    assert done.returncode == 0
    assert done.stdout.startswith("unchanged: the run is waiting;")
    [other] = store_runs(a_run())
    shown = json.loads(scheduler(database_url, "retry", other.event_id, "--json").stdout)
    assert (shown["event_id"], shown["status"], shown["tenant"]) == (other.event_id, "waiting", "default")
    done = scheduler(database_url, "retry", "--status", "dead", "--json")
    assert json.loads(done.stdout) == {"matched": 0}


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["show", "00000000-0000-0000-0000-000000000000"], 1, "no run has the event_id 00000000-"),
    (["retry", "00000000-0000-0000-0000-000000000000"], 1, "no run has the event_id 00000000-"),
    (["show", "42"], 2, "invalid UUID value: '42'"),
    (["list", "--status", "expected"], 2, "invalid choice: 'expected'"),
    (["list", "--since", "yesterday"], 2, "must be RFC 3339 with an offset"),
    (["list", "--limit", "0"], 2, "must be a whole number from 1 to"),
    (["export", "--since", "2026-12-01T08:00:00Z"], 2, "required: --until"),
    ([], 2, "required: VERB"),
])
def test_errors_are_printed_on_stderr(database_url, arguments, code, message):
    done = scheduler(database_url, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


@pytest.mark.parametrize("arguments", [
    ["list"], ["show", str(uuid4())], ["retry", str(uuid4())],
    ["export", "--since", "2026-12-01T08:00:00Z", "--until", "2026-12-02T08:00:00Z"],
])
def test_an_unreachable_database_is_exit_69(arguments):
    done = scheduler("postgresql://u:hush@127.0.0.1:1/x", *arguments)
    assert (done.returncode, done.stdout) == (69, "")
    assert "127.0.0.1" in done.stderr
    assert "hush" not in done.stderr
