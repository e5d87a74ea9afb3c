"""Search jobs by a part of the name or by a value in the payload, in a bounded number of rows; names of jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.resources import query

NAMES_READ = 20_000
PAYLOADS_READ = 10_000


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a search found."""

    id: str
    name: str | None
    job_type: str
    tenant: str
    status: str


def names_of_jobs(connection: Connection, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the names of jobs, or their types, by id."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/names"), {"ids": list(job_ids)})
        return dict(cursor.fetchall())


def jobs_with_name(connection: Connection, text: str, tenant: str | None, limit: int) -> list[FoundJob]:
    """Return jobs whose name contains a text in any case, among the newest jobs of a tenant, newest first."""
    return _search(connection, "jobs/name_contains", {"text": text, "limit": NAMES_READ, "shown": limit}, tenant)


def jobs_with_payload(
    connection: Connection, path: list[str], value: str, tenant: str | None, limit: int
) -> list[FoundJob]:
    """Return jobs with a value at a path of the payload, among the newest jobs of a tenant, newest first."""
    values = {"path": path, "value": value, "limit": PAYLOADS_READ, "shown": limit}
    return _search(connection, "jobs/payload_has", values, tenant)


def _search(connection: Connection, name: str, values: Mapping[str, Any], tenant: str | None) -> list[FoundJob]:
    wanted = JobFilter(tenant=tenant)
    with translated(), connection.cursor() as cursor:
        cursor.execute(query(name, newest=wanted.newest),
                       {**wanted.values(), "before": None, "before_id": None, **values})
        return [FoundJob(*row) for row in cursor]
