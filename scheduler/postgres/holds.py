"""Release jobs that were held while one of their runs was open (overlap: wait)."""

from collections.abc import Iterable
from datetime import datetime

from scheduler.postgres.claims import array
from scheduler.postgres.connection import Connection, Cursor, transaction
from scheduler.resources import query

_ANNOUNCED = query("jobs/announce_released")
# For jobs whose run has ended, after the commit of that.
RELEASE = query("jobs/release", condition="true", due_from=_ANNOUNCED)
# For jobs that a transaction leaves held; runs after its commit.
RELEASE_EXPIRED = query("jobs/release", condition=query("jobs/hold_expired"), due_from=_ANNOUNCED)
_RELEASE_NOW = query("jobs/release", condition="true", due_from="min(wake_at)")


def release_jobs(cursor: Cursor, job_ids: Iterable[str]) -> datetime | None:
    """Release the jobs that are held and not locked; return from when they are due, None if there are none."""
    cursor.execute(_RELEASE_NOW, {"ids": array(job_ids)})
    row = cursor.fetchone()
    return None if row is None else row[0]


def release_expired_holds(connection: Connection, job_ids: Iterable[str]) -> None:
    """Release the jobs that need not wait any longer, in a separate transaction, and wake producers for them."""
    with transaction(connection) as cursor:
        cursor.execute(RELEASE_EXPIRED, {"ids": array(job_ids)})
