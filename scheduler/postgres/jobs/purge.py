"""Delete everything about a job."""

from collections.abc import Sequence

from scheduler.postgres.connection import Cursor
from scheduler.resources import query

RUNS_AT_ONCE = 5_000


def delete_runs(cursor: Cursor, job_id: str) -> list[str]:
    """Delete the job's open runs and some of the finished ones; return their event ids."""
    cursor.execute(query("jobs/purge_runs"), {"job_id": job_id, "most": RUNS_AT_ONCE})
    return [event_id for (event_id,) in cursor.fetchall()]


def delete_job(cursor: Cursor, job_id: str) -> None:
    """Delete the job's row."""
    cursor.execute(query("jobs/purge"), (job_id,))


def erase_audit(cursor: Cursor, things: Sequence[str]) -> None:
    """Erase the content of the audit entries about the job and its runs."""
    cursor.execute(query("audit/erase"), (list(things),))
