"""`scheduler job show` on a real database."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from support import connected

from scheduler.cli.show.job import explain
from scheduler.domain.errors import Unavailable
from scheduler.domain.jobs.job import JobStatus
from scheduler.postgres.jobs.report import JobReport, report
from scheduler.views.jobs import JobView

DUE = datetime(2026, 12, 1, 8, tzinfo=UTC)
REFUSED_AND_LATE = """
INSERT INTO jobs (
    id, job_type, rrule, timezone, starts_at, next_run_at, occurrence, requested_at, created_at,
    last_due_at, last_emitted_at, last_confirmed_at,
    last_problem, last_problem_at, last_problem_due_at, last_refusals
) VALUES (
    %s, 'invoice.reminder', 'FREQ=DAILY', 'Europe/Berlin', '2026-12-01 08:00Z', '9999-12-02 08:00Z', 1,
    '2026-11-30 08:00Z', '2026-11-30 08:00Z',
    '2026-12-01 08:00Z', '2026-12-01 08:00:11.2Z', '2026-12-01 08:00:11.204Z',
    'no queue is bound with the key due', '2026-12-01 08:00:07.5Z', '2026-12-01 08:00Z', 3
)
"""


@pytest.fixture
def sql(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        def run(statement, *values):
            cursor.execute(statement, values or None)

        yield run


@pytest.fixture
def job(sql):
    made = uuid4()
    sql(REFUSED_AND_LATE, str(made))
    return made


def beat(sql, role, silent):
    sql("INSERT INTO replicas (id, role, host, pid, version, metrics_port, last_seen_at) "
        "VALUES (gen_random_uuid(), %s, 'h', 1, '1', 1, now() - %s::interval)", role, silent)


def show(database_url, *arguments):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_", "AMQP_"))}
    return subprocess.run(
        [sys.executable, "-m", "scheduler", "job", "show", *arguments], env=clean | {"DATABASE_URL": database_url},
        capture_output=True, text=True, timeout=60, check=False,
    )


def test_every_column_is_read(database_url, job):
    reported = report(database_url, job)
    assert reported is not None
    assert (reported.id, reported.status, reported.triggers) == (str(job), JobStatus.PENDING, ())
    assert reported.last_due_at == DUE
    assert reported.last_emitted_at == DUE + timedelta(seconds=11.2)
    assert reported.last_confirmed_at == DUE + timedelta(seconds=11.204)
    assert (reported.last_problem, reported.last_refusals) == ("no queue is bound with the key due", 3)
    assert (reported.last_problem_at, reported.last_problem_due_at) == (DUE + timedelta(seconds=7.5), DUE)
    assert reported.wake_at == reported.next_run_at == reported.due_at
    assert (reported.producers, reported.consumers, reported.in_hand) == (0, 0, False)


def test_an_unknown_job_is_none(database_url):
    assert report(database_url, uuid4()) is None


def test_only_replicas_with_a_fresh_heartbeat_count(database_url, sql, job):
    for role, silent in (("producer", "0 s"), ("producer", "0 s"), ("producer", "1 hour"), ("consumer", "0 s")):
        beat(sql, role, silent)
    reported = report(database_url, job)
    assert (reported.producers, reported.consumers) == (2, 1)


def test_a_locked_job_is_reported_without_waiting(database_url, sql, job):
    sql("UPDATE jobs SET next_run_at = now() - interval '1 hour'")
    with connected(database_url) as producer, producer.cursor() as cursor:
        producer.autocommit = False
        cursor.execute("SELECT FROM jobs FOR UPDATE SKIP LOCKED")
        assert report(database_url, job).in_hand
        cursor.execute("UPDATE jobs SET retries = 1")
        assert report(database_url, job).in_hand
        producer.rollback()
    reported = report(database_url, job)
    assert not reported.in_hand
    assert [line for line in explain(reported) if line.endswith("no producer has claimed it.")]


def test_a_trigger_is_due_from_when_it_was_issued(database_url, sql, job):
    sql("UPDATE jobs SET triggers = '{2026-12-03 08:00Z,2026-12-03 09:00Z}', trigger_at = '2026-12-03 08:00:02Z'")
    reported = report(database_url, job)
    assert reported.triggers == (DUE + timedelta(days=2), DUE + timedelta(days=2, hours=1))
    assert reported.due_at == DUE + timedelta(days=2)


@pytest.mark.parametrize("columns", [
    "status = 'cancelled', next_run_at = NULL, cancelled_at = now(), finished_at = now()",
    "status = 'done', next_run_at = NULL, finished_at = now()",
    "status = 'paused', paused_at = now()",
    "status = 'awaiting', job_type = NULL, requested_at = NULL, next_run_at = NULL, rrule = NULL",
    "rrule = NULL, every = '90 minutes', retries = 1, retry_at = now()",
])
def test_jobs_of_every_status_are_described(database_url, sql, job, columns):
    sql(f"UPDATE jobs SET {columns}")
    assert explain(report(database_url, job))[0] == f"job        {job}"


def test_a_database_that_cannot_be_read_is_unavailable(empty_database):
    with pytest.raises(Unavailable, match="does not exist"):
        report(empty_database, UUID(int=0))


def test_the_command_prints_text_or_json(database_url, job):
    done = show(database_url, str(job))
    assert (done.returncode, done.stderr) == (0, "")
    assert "No producer is running: no events are emitted until one starts.\n" in done.stdout
    assert (
        "The last event was due 2026-12-01T08:00:00.000000Z, emitted 11.2 s later, confirmed 0.004 s after that.\n"
        "It was late: the broker rejected it 3 times, last at 2026-12-01T08:00:07.500000Z: "
        "no queue is bound with the key due.\n"
    ) in done.stdout
    done = show(database_url, str(job).upper(), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    values = json.loads(done.stdout)
    assert values.keys() == set(JobReport.__dataclass_fields__) | set(JobView.model_fields)
    assert (values["id"], values["last_emitted_at"]) == (str(job), "2026-12-01T08:00:11.200000Z")
    assert (values["retry_at"], values["last_refusals"], values["producers"]) == (None, 3, 0)


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["00000000-0000-0000-0000-000000000000"], 1, "no job has the id 00000000-0000-0000-0000-000000000000"),
    (["42"], 2, "invalid UUID value: '42'"),
    ([], 2, "required: ID"),
])
def test_job_show_errors_go_to_stderr(database_url, arguments, code, message):
    done = show(database_url, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_an_unreachable_database_is_exit_69():
    done = show("postgresql://u:hush@127.0.0.1:1/x", str(uuid4()))
    assert (done.returncode, done.stdout) == (69, "")
    assert "127.0.0.1" in done.stderr
    assert "hush" not in done.stderr
