"""Release jobs that were held while one of their runs was open (overlap: wait)."""

from collections.abc import Iterable

from scheduler.postgres.claims import array
from scheduler.postgres.connection import Connection, Cursor, transaction
from scheduler.resources import query

# For jobs whose run has ended.
RELEASE = query("jobs/release", condition="true")
# For jobs that a transaction leaves held; runs after its commit.
RELEASE_EXPIRED = query("jobs/release", condition=query("jobs/hold_expired"))


def release_jobs(cursor: Cursor, job_ids: Iterable[str]) -> None:
    """Release the jobs that are held and not locked, and wake producers for them."""
    cursor.execute(RELEASE, {"ids": array(job_ids)})


def release_expired_holds(connection: Connection, job_ids: Iterable[str]) -> None:
    """Release the jobs that need not wait any longer, in a separate transaction."""
    with transaction(connection) as cursor:
        cursor.execute(RELEASE_EXPIRED, {"ids": array(job_ids)})
