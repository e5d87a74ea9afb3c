"""The columns of a job: the domain and the table agree, and every host value is returned unchanged."""

import io
import json
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import connected

from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.messages import OnMissed, Priority, RunPolicy
from scheduler.domain.recurrence import Spec
from scheduler.postgres.connection import connect
from scheduler.postgres.jobs.columns import COLUMNS, DEFAULTS, FRESH, write_fresh
from scheduler.postgres.jobs.store import lock, save
from scheduler.postgres.row_text import copy_line, copy_text

# Managed by the database: commands change them only by finishing the job.
ITS_OWN = {
    "created_at", "finished_at", "wake_at", "last_due_at", "last_emitted_at", "last_confirmed_at", "last_problem",
    "last_problem_at", "last_problem_due_at", "last_refusals", "created_by", "created_via", "updated_at",
    "updated_by",
}
T = datetime(2026, 12, 1, 8, 30, 15, 123456, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
AWKWARD = ["", "\\N", "\\", "\t", "a\tb\\nc", "\n", "\r\n", "{}", "NULL", "'", '"', "é€😀", "\x01", "\\."]


def whole(text):
    """A job that leaves no column empty, with `text` wherever a host may write."""
    spec = Spec("FREQ=DAILY", None, None, "Europe/Berlin", T.replace(tzinfo=None), T, T + timedelta(days=9),
                "run_at", text, "next", text, timedelta(seconds=600))
    lateness = timedelta(days=2, microseconds=7)
    definition = Definition("{}", lateness, RunPolicy(), json.dumps({"webhook": {"url": text}}), text, text, text,
                            text or "t", OnMissed.SKIP, text, text, Priority.LOW, text, spec)
    return Job(
        str(uuid4()), "a.tenant", JobStatus.PAUSED, T, 3, 2, T, (T, T + timedelta(seconds=1)), T, T, T, T, T, T,
        str(uuid4()), "2026c", T, T, (T, T + timedelta(days=1)), T, T, T, 7, definition,
    )


def fresh_job(text):
    """The same as only a request leaves it."""
    return replace(
        whole(text), status=JobStatus.PENDING, occurrence=0, retries=0, retry_at=None, triggers=(),
        trigger_at=None, triggered_at=None, cancelled_at=None, paused_at=None, resumed_at=None, held_by=None,
        unsettled=None,
    )


def plain_job():
    """A job that runs once, like most; most of its columns are empty."""
    spec = Spec(None, None, None, "UTC", None, T, None)
    definition = Definition("{}", *[None] * 6, "t", OnMissed.LATEST, *[None] * 4, spec)
    return Job(str(uuid4()), "default", JobStatus.PENDING, T, requested_at=T, definition=definition)


def stored(url, job, *, known=None):
    connection = connect(url, "test")
    try:
        with connection.cursor() as cursor:
            save(cursor, {} if known is None else {job.id: known}, {job.id: job})
            return lock(cursor, [job.id])[job.id]
    finally:
        connection.rollback()
        connection.close()


def test_the_table_has_exactly_these_columns_and_its_own(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'jobs'")
        found = {name for name, in cursor.fetchall()}
    assert found == set(COLUMNS) | ITS_OWN
    assert set(FRESH) <= set(COLUMNS)
    assert len(COLUMNS) == len(set(COLUMNS))


def test_a_column_that_is_left_out_of_a_copy_is_null(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'jobs' "
                       "AND is_nullable = 'YES' AND column_default IS NOT NULL")
        defaulted = {name for name, in cursor.fetchall()}
    assert defaulted & set(FRESH) == {"requested_at"}  # which every fresh job has


def test_the_values_that_are_left_out_of_a_copy_are_the_tables_defaults(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO jobs (id) VALUES (gen_random_uuid()) "
                       f"RETURNING {', '.join(f'{name}::text' for name in DEFAULTS)}")
        assert cursor.fetchone() == tuple(DEFAULTS.values())


def test_most_new_jobs_need_few_columns():
    assert set(write_fresh([plain_job(), plain_job()])) == {
        "id", "requested_at", "next_run_at", "starts_at", "payload", "job_type",
    }


@pytest.mark.parametrize("name", ["calendar", "sending_window", "jitter"])
def test_the_plan_of_an_adjusted_job_is_stored_beside_plain_ones(name):
    job = plain_job()
    value = timedelta(1) if name == "jitter" else "text"
    spec = replace(job.definition.spec, **{name: value})
    job = replace(job, definition=replace(job.definition, spec=spec), settled_until=T)
    assert spec.adjusted
    assert "settled_until" in write_fresh([plain_job(), job])


def test_jobs_of_different_shapes_are_stored_together(database_url):
    jobs = {each.id: each for each in (fresh_job("a\\b"), fresh_job("plain"), plain_job(), plain_job())}
    with closing(connect(database_url, "test")) as connection, connection.cursor() as cursor:
        save(cursor, {}, dict(jobs))
        assert lock(cursor, list(jobs)) == jobs


@pytest.mark.parametrize("text", AWKWARD)
def test_a_job_comes_back_as_it_was_stored_by_every_way_in(database_url, text):
    job = whole(text)
    assert stored(database_url, job) == job  # named before it was asked for: INSERT
    fresh = fresh_job(text)
    assert fresh.fresh
    assert stored(database_url, fresh) == fresh  # COPY


def test_a_change_writes_every_column(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        job = whole("text")
        cursor.execute("INSERT INTO jobs (id) VALUES (%s)", (job.id,))
    assert stored(database_url, job, known=Job(job.id)) == job


ROWS = st.lists(st.tuples(*[st.none() | TEXTS | st.sampled_from(AWKWARD)] * 3), min_size=1, max_size=4)


@given(rows=ROWS)
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copy_text_is_escaped(copied, rows):
    assert copied("".join(map(copy_line, rows))) == rows
    assert copied(copy_text(list(zip(*rows, strict=True)))) == rows


@pytest.fixture
def copied(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE texts (a text, b text, c text)")

        def copy(text):
            cursor.execute("TRUNCATE texts")
            cursor.copy_expert("COPY texts FROM STDIN", io.StringIO(text))
            cursor.execute("SELECT * FROM texts")
            return cursor.fetchall()

        yield copy
