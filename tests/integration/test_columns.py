"""The columns of a job: what the domain has, the table holds, and whatever a host writes comes back unchanged."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import connected

from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.jobs.missed import OnMissed
from scheduler.domain.messages import Priority, RunPolicy
from scheduler.domain.recurrence import Spec
from scheduler.postgres.columns import copy_line
from scheduler.postgres.connection import connect
from scheduler.postgres.jobs.columns import COLUMNS, FRESH
from scheduler.postgres.jobs.store import lock, save

# The database's own: nobody asked for them, and no command changes them but by finishing the job.
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
    spec = Spec("FREQ=DAILY", None, None, "Europe/Berlin", T.replace(tzinfo=None), T, T + timedelta(days=9))
    lateness = timedelta(days=2, microseconds=7)
    definition = Definition(text or "t", "{}", OnMissed.SKIP, lateness, RunPolicy(), text, Priority.LOW, text,
                            json.dumps({"webhook": {"url": text}}), text, text, text, spec)
    return Job(
        str(uuid4()), "a.tenant", JobStatus.PAUSED, T, 3, 2, T, (T, T + timedelta(seconds=1)), T, T, T, T, T, T,
        str(uuid4()), definition,
    )


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


@pytest.mark.parametrize("text", AWKWARD)
def test_a_job_comes_back_as_it_was_stored_by_every_way_in(database_url, text):
    job = whole(text)
    assert stored(database_url, job) == job  # named before it was asked for: INSERT
    fresh = replace(
        job, status=JobStatus.PENDING, occurrence=0, retries=0, retry_at=None, triggers=(), trigger_at=None,
        triggered_at=None, cancelled_at=None, paused_at=None, resumed_at=None, held_by=None,
    )
    assert fresh.fresh
    assert stored(database_url, fresh) == fresh  # COPY


def test_a_change_writes_every_column(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        job = whole("text")
        cursor.execute("INSERT INTO jobs (id) VALUES (%s)", (job.id,))
    assert stored(database_url, job, known=Job(job.id)) == job


@given(row=st.lists(st.none() | TEXTS | st.sampled_from(AWKWARD), min_size=3, max_size=3))
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_means_anything_to_copy(copied, row):
    assert copied(row) == tuple(row)


@pytest.fixture
def copied(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE texts (a text, b text, c text)")

        def copy(row):
            cursor.execute("TRUNCATE texts")
            cursor.copy_expert("COPY texts FROM STDIN", io.StringIO(copy_line(row)))
            cursor.execute("SELECT * FROM texts")
            [found] = cursor.fetchall()
            return found

        yield copy
