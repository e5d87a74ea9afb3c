"""Jobs by the zone and the version of the zone data that planned them."""

from collections.abc import Iterator, Sequence

from scheduler.domain.jobs.job import Job
from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.postgres.jobs.columns import SELECTED_OF_PLAN, read
from scheduler.resources import query

_BY_ZONE = query("zones/by_zone")
_READ = query("zones/read_jobs", by_zone=_BY_ZONE, selected=SELECTED_OF_PLAN)


def list_plans(cursor: Cursor) -> list[tuple[str, str]]:
    """Return the zones and versions that jobs were planned with; an empty version is an earlier release's."""
    cursor.execute(query("zones/list_plans", by_zone=_BY_ZONE))
    return cursor.fetchall()


def list_outdated_jobs(cursor: Cursor, zone: str, version: str, limit: int) -> list[str]:
    """Return ids of jobs that were planned with one version of a zone and are not due."""
    values = {"zone": zone, "version": version, "limit": limit}
    cursor.execute(query("zones/list_jobs", by_zone=_BY_ZONE), values)
    return [job_id for job_id, in cursor.fetchall()]


def read_outdated_jobs(connection: Connection, zone: str, version: str) -> Iterator[Job]:
    """Yield the same jobs without payload and target, next first, in a transaction that stays open."""
    with translated(), connection.cursor(name="outdated_jobs") as cursor:
        cursor.execute(_READ, {"zone": zone, "version": version})
        for row in cursor:
            yield read(row)


def count_outdated_jobs(cursor: Cursor, plans: Sequence[tuple[str, str]]) -> int:
    """Return the number of jobs that were planned with these versions of zones and are not due."""
    zones, versions = [zone for zone, _ in plans], [version for _, version in plans]
    cursor.execute(query("zones/count_jobs", by_zone=_BY_ZONE), {"zones": zones, "versions": versions})
    [(count,)] = cursor.fetchall()
    return int(count)
