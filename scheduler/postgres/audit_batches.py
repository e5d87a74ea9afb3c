"""Read bulk actions from the audit: the jobs or runs they changed, and their current statuses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduler.postgres.connection import Connection, translated
from scheduler.resources import query

MAX_COUNTED = 100_000


@dataclass(slots=True)
class BatchHead:
    """Who made a bulk action, when and why, and how many jobs or runs it changed."""

    at: datetime
    who: str | None
    via: str
    reason: str | None
    action: str
    kind: str
    number: int


@dataclass(slots=True)
class BatchEntry:
    """One changed job or run; `standing` if nothing has changed it since."""

    place: int
    thing: str
    tenant: str
    kind: str
    action: str
    before: dict[str, Any] | None
    standing: bool


def find_batch(connection: Connection, batch: str, tenant: str | None) -> BatchHead | None:
    """Return a bulk action that changed something of the tenant; None for all tenants."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("audit/batch_head"), {"batch": batch, "tenant": tenant, "most": MAX_COUNTED})
        row = cursor.fetchone()
        return None if row is None else BatchHead(*row)


def list_batch(
    connection: Connection, batch: str, tenant: str | None, limit: int, after: int = 0
) -> list[BatchEntry]:
    """Return the entries of a bulk action, after the entry `after`."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("audit/batch"), {"batch": batch, "tenant": tenant, "limit": limit, "after": after})
        return [BatchEntry(*row) for row in cursor]


def job_statuses(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return the statuses of jobs by id."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/statuses"), {"ids": list(ids)})
        return dict(cursor.fetchall())


def run_progress(connection: Connection, event_ids: Sequence[str], since: datetime) -> dict[str, int]:
    """Count retried runs by status."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("runs/batch_progress"), {"ids": list(event_ids), "since": since})
        return dict(cursor.fetchall())
