"""Store the versions of a job: the requests that defined it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler.domain.caller import Caller
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.postgres.jobs.columns import AS_JSON, DEFINED, SELECTED, read, write_definition
from scheduler.postgres.row_text import json_record
from scheduler.resources import query

KEPT = 100
NEWEST = 2**31 - 1  # above every version
_PAGE_BYTES = 4_000_000
_COLUMNS = ("job_id", "position", "by", "via", "before", "after")
_AS_JSON = frozenset({"position", "before", "after"})
_LIST = query("job_versions/list", selected=SELECTED)


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A request that changed a job, and the job before it."""

    before: Job
    after: Job
    caller: Caller


@dataclass(frozen=True, slots=True)
class JobVersion:
    """A stored version; the job has only its definition, id and tenant."""

    version: int
    at: datetime
    by: str | None
    via: str
    job: Job


def insert_versions(cursor: Cursor, versions: Sequence[NewVersion]) -> None:
    """Add versions, in this order."""
    records = ",".join(
        json_record(_COLUMNS, (new.after.id, str(position), new.caller.who, new.caller.via.value,
                               _definition(new.before), _definition(new.after)), _AS_JSON)
        for position, new in enumerate(versions)
    )
    cursor.execute(query("job_versions/insert"), {"versions": f"[{records}]", "kept": KEPT})


def _definition(job: Job) -> str:
    """Return the columns of a job that only has this definition."""
    state = {"id": job.id, "tenant": job.tenant, "status": JobStatus.PENDING.value, "triggers": "{}"}
    return json_record((*state, *DEFINED), (*state.values(), *write_definition(job)), AS_JSON)


def list_versions(connection: Connection, job: Job, limit: int, before: int = NEWEST) -> list[JobVersion]:
    """Return versions below `before`, newest first; fewer than `limit` if they are large."""
    values = {"job_id": job.id, "before": before, "most_bytes": _PAGE_BYTES, "limit": limit}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_LIST, values)
        rows = cursor.fetchall()
        versions = [JobVersion(version, at, by, via, read(row)) for version, at, by, via, *row in rows]
        if versions or before != NEWEST:
            return versions
        cursor.execute(query("job_versions/first"), (job.id,))
        return [JobVersion(1, at, by, via, job) for at, by, via in cursor.fetchall()]


def delete_versions(cursor: Cursor, job_id: str) -> None:
    """Delete all versions of a job."""
    cursor.execute(query("job_versions/delete"), (job_id,))
