"""When a schedule runs, as people read it: in local time, in UTC, and what the clocks did to it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice, takewhile

from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.recurrence import Schedule, compile_schedule, local_time
from scheduler.domain.recurrence.notes import note
from scheduler.postgres.jobs.lists import JobRow
from scheduler.preview import preview
from scheduler.views.base import View

MOST = 1000
USUAL = 10


class OccurrenceView(View):
    """One occurrence."""

    local: str
    utc: str
    note: str


def occurrences(
    row: JobRow, now: datetime, *, count: int, start: datetime | None, end: datetime | None
) -> list[OccurrenceView]:
    """Return the next occurrences of a job, from its next run on; of a time span where one is asked for."""
    asked = row.job.definition
    assert asked is not None  # noqa: S101 - see jobs/find.sql
    schedule = compile_schedule(asked.spec)
    if start is None:
        if row.job.status in (JobStatus.DONE, JobStatus.CANCELLED):
            return []
        start = row.job.next_run_at if row.job.next_run_at is not None else now
    following: Iterator[datetime] = schedule.since(start)
    if end is not None:
        limit = end
        following = takewhile(lambda instant: instant < limit, following)
    return [_view(schedule, asked.spec.timezone, each) for each in islice(following, count)]


def previewed(fields: Mapping[str, object], now: datetime) -> list[OccurrenceView]:
    """Return the occurrences of a schedule that nobody relies on yet; raise Rejected in a command's own words."""
    found = preview(fields, now, USUAL)
    return [_view(found.schedule, found.spec.timezone, each) for each in found.occurrences]


def _view(schedule: Schedule, timezone: str, instant: datetime) -> OccurrenceView:
    here = local_time(instant, timezone)
    utc = instant.replace(tzinfo=None).isoformat() + "Z"  # a fraction only where there is one, as `preview` does
    return OccurrenceView(local=here.isoformat(), utc=utc, note=note(schedule, instant))
