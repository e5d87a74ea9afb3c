"""Views of occurrences: local time, UTC, and notes on clock changes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice, takewhile
from typing import Literal
from uuid import UUID

from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.jobs.adjusted import planner_of, unsettled
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.recurrence import Schedule, compile_schedule, local_time
from scheduler.domain.recurrence.adjustment_fields import FindCalendar
from scheduler.domain.recurrence.dst_notes import dst_note
from scheduler.domain.recurrence.moved_days import MICRO, plus
from scheduler.domain.recurrence.planner import PlannedOccurrence, Planner
from scheduler.domain.recurrence.preview import Item, Preview, adjusted_preview, preview, utc_text
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.base import Page, View

MOST = 1000
USUAL = 10


class OccurrenceView(View):
    """One occurrence."""

    local: str
    utc: str
    note: str


class MovedOccurrenceView(OccurrenceView):
    """An occurrence moved by a calendar, a window or jitter."""

    nominal_at: str
    moved: list[Literal["calendar", "window", "jitter"]]


class SkippedView(View):
    """An occurrence that is not emitted."""

    nominal_at: str
    reason: Literal["calendar", "merged"]
    note: str


class PreviewView(View):
    """The occurrences of a schedule with a calendar, a window or jitter."""

    items: list[MovedOccurrenceView | OccurrenceView]
    next: str | None
    skipped: list[SkippedView]


@dataclass(frozen=True, slots=True)
class PreviewPage(Page[OccurrenceView]):
    """The occurrences of a schedule; `skipped` is None without a calendar, a window and jitter."""

    skipped: list[SkippedView] | None = None


def occurrences_page(
    row: JobRow, now: datetime, effective: EffectiveCalendar | None, *, count: int, start: datetime | None,
    end: datetime | None
) -> PreviewPage:
    """Return the occurrences of a job from its next run, or in the time span if it is given."""
    definition = row.job.requested
    if not definition.spec.adjusted:
        return PreviewPage(occurrences(row, now, count=count, start=start, end=end))
    ended = row.job.status in (JobStatus.DONE, JobStatus.CANCELLED)
    if start is None and ended:
        return PreviewPage([], skipped=[])
    following: Iterator[PlannedOccurrence]
    planner = planner_of(row.job, definition.spec, effective)
    if start is None:
        following, since = unsettled(planner, row.job), row.job.reported_until or now
    else:
        since = plus(start, -MICRO)
        past = Planner(definition.spec, planner.adjustments, UUID(row.job.id)).after(since)
        past = takewhile(lambda occurrence: occurrence.due_at <= now, past)
        following = chain(past, planner.after(max(since, now)))
    if end is not None:
        limit = end
        following = takewhile(lambda occurrence: occurrence.due_at < limit, following)
    return _page(adjusted_preview(definition.spec, planner, following, count, since, end))


def occurrences(
    row: JobRow, now: datetime, *, count: int, start: datetime | None, end: datetime | None
) -> list[OccurrenceView]:
    """Return the occurrences of a job without adjustments."""
    definition = row.job.requested
    schedule = compile_schedule(definition.spec)
    if start is None:
        if row.job.status in (JobStatus.DONE, JobStatus.CANCELLED):
            return []
        start = row.job.next_run_at if row.job.next_run_at is not None else now
    following: Iterator[datetime] = schedule.since(start)
    if end is not None:
        limit = end
        following = takewhile(lambda instant: instant < limit, following)
    return [_view(schedule, definition.spec.timezone, instant) for instant in islice(following, count)]


def preview_page(fields: Mapping[str, object], now: datetime, find: FindCalendar | None = None) -> PreviewPage:
    """Return the occurrences of a schedule before it is used. Raises Rejected as for a command."""
    return _page(preview(fields, now, USUAL, find))


def _page(result: Preview) -> PreviewPage:
    skipped = result.skipped
    return PreviewPage(
        [_item_view(item) for item in result.items],
        skipped=None if skipped is None else [SkippedView.model_validate(item.fields()) for item in skipped],
    )


def _item_view(item: Item) -> OccurrenceView:
    kind = OccurrenceView if item.nominal_at is None else MovedOccurrenceView
    return kind.model_validate(item.fields())


def _view(schedule: Schedule, timezone: str, instant: datetime) -> OccurrenceView:
    here = local_time(instant, timezone)
    return OccurrenceView(local=here.isoformat(), utc=utc_text(instant), note=dst_note(schedule, instant))
