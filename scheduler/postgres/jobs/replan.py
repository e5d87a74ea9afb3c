"""Lock jobs that are planned again, and save their plans."""

from collections.abc import Sequence
from datetime import datetime

from scheduler.domain.jobs.job import Job
from scheduler.postgres.claims import array
from scheduler.postgres.connection import Cursor
from scheduler.postgres.jobs.columns import SELECTED_OF_PLAN, read
from scheduler.resources import query

_INSTANTS = ("nominal_at", "settled_until", "settled_due", "reported_until", "skip_at")
_LOCK = query("replan/lock", selected=SELECTED_OF_PLAN)


def lock_jobs(cursor: Cursor, ids: Sequence[str]) -> list[Job]:
    """Lock the jobs that are neither due nor locked, and return them without payload and target."""
    cursor.execute(_LOCK, {"ids": array(ids)})
    return [read(row) for row in cursor.fetchall()]


def save_plans(cursor: Cursor, jobs: Sequence[Job]) -> None:
    """Save the plans of locked jobs."""
    specs = [job.definition.spec for job in jobs if job.definition is not None]
    cursor.execute(query("replan/save"), {
        "ids": array(job.id for job in jobs),
        "next_run_at": _instants([job.next_run_at for job in jobs]),
        "starts_at": _instants([spec.starts_at for spec in specs]),
        "ends_at": _instants([spec.ends_at for spec in specs]),
        "zone_versions": array(job.zone_version or "NULL" for job in jobs),
        **{name: _instants([getattr(job, name) for job in jobs]) for name in _INSTANTS},
        "revisions": array(number_text(job.calendar_revision) for job in jobs),
        "unsettled": [spans_text(job.unsettled) for job in jobs],
    })


def number_text(number: int | None) -> str:
    """Return a number as in an array."""
    return "NULL" if number is None else str(number)


def spans_text(ends: Sequence[datetime] | None) -> str:
    """Return instants as the text of an array; empty for None."""
    return f"{{{','.join(map(datetime.isoformat, ends or ()))}}}"


def _instants(instants: Sequence[datetime | None]) -> str:
    return array("NULL" if instant is None else instant.isoformat() for instant in instants)
