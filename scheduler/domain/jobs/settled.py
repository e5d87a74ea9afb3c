"""Record the settled occurrences of a job (emitted or missed), by nominal instant.

Under one plan this follows from the plan: an occurrence is settled if it is due up to `settled_due`, or if it is
skipped and not after `reported_until`. Another plan gives the same occurrences other due times. So a job that is
planned again keeps a record of its settled occurrences: all up to `settled_until`, except occurrences strictly
inside a span in `unsettled`, which lists start and end of each span in turn. Most jobs have no such span.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from scheduler.domain.recurrence.moved_days import END, MICRO, plus
from scheduler.domain.recurrence.planner import Planner
from scheduler.domain.recurrence.ranges import FOREVER, Range, common, complement, union
from scheduler.domain.recurrence.schedule import Once, Recurring, Schedule, to_instant, to_seconds

# Older occurrences count as settled. A plan moves an occurrence by some months at most, but a pause can be long.
_OLDEST_UNSETTLED = timedelta(days=4_000)
_MAX_SPANS = 2_000  # the newest; there are as many if jitter mixes the occurrences of a frequent job
# A report of skipped occurrences may be postponed by this much, so skip_at is not always a nominal instant.
_POSTPONED = timedelta(seconds=15)


class SettledJob(Protocol):
    """A job with the columns that record its settled occurrences."""

    @property
    def settled_until(self) -> datetime | None:
        """The latest nominal instant that was settled under earlier plans."""

    @property
    def unsettled(self) -> tuple[datetime, ...] | None:
        """Spans before `settled_until` whose occurrences were not settled: start, end, start, end …"""

    @property
    def settled_due(self) -> datetime | None:
        """The latest due time of the occurrences emitted or missed under the current plan."""

    @property
    def reported_until(self) -> datetime | None:
        """Skipped occurrences up to this nominal instant are reported."""

    @property
    def skip_at(self) -> datetime | None:
        """The time to report the next skipped occurrences."""


class Record(NamedTuple):
    """The settled occurrences, under any plan."""

    settled_until: datetime | None = None
    unsettled: tuple[datetime, ...] | None = None

    @property
    def start(self) -> datetime | None:
        """Return an instant up to which every occurrence is settled; None if none is."""
        return self.unsettled[0] if self.unsettled else self.settled_until

    @property
    def ranges(self) -> list[Range] | None:
        """Return the nominal instants of the unsettled occurrences; None if no occurrence is settled."""
        if self.settled_until is None:
            return None
        ranges = [(plus(after, MICRO), before) for after, before in _pairs(self.unsettled or ())]
        return [*ranges, (plus(self.settled_until, MICRO), FOREVER)]

    def includes(self, nominal: datetime) -> bool:
        """Return whether an occurrence is settled."""
        if self.settled_until is None or nominal > self.settled_until:
            return False
        ends = self.unsettled or ()
        index = bisect_left(ends, nominal)
        return index % 2 == 0 or ends[index] == nominal

    def including(self, ranges: Sequence[Range], schedule: Schedule) -> "Record":
        """Return the record with the occurrences in `ranges` added; an empty record is unchanged."""
        if self.settled_until is None or self.start is None or not ranges:
            return self
        end = max(plus(self.settled_until, MICRO), ranges[-1][1])
        others = complement(ranges, plus(self.start, MICRO), end)
        return _record(schedule, self.start, end, common(others, self.ranges or ()))


def stored_record(job: SettledJob) -> Record:
    """Return the record of occurrences settled under earlier plans."""
    return Record(job.settled_until, job.unsettled)


def settled_record(job: SettledJob, planner: Planner, now: datetime) -> Record:
    """Return the record of occurrences settled under the plan of `planner` or an earlier one."""
    stored = stored_record(job)
    marks = [mark for mark in (job.settled_until, job.reported_until) if mark is not None]
    if job.settled_due is not None:
        marks.append(planner.latest_nominal(job.settled_due))
    if not marks:
        return stored
    start, end = _all_settled_until(job, planner, now), plus(max(marks), MICRO)
    first = plus(planner.schedule.starts_at, -MICRO) if start is None else start
    if end - first > _OLDEST_UNSETTLED:
        start = first = plus(end, -_OLDEST_UNSETTLED)
    unsettled = _unsettled(job, planner, plus(first, MICRO), end)
    if (ranges := stored.ranges) is not None:
        unsettled = common(unsettled, ranges)
    return _record(planner.schedule, start, end, unsettled)


def _unsettled(job: SettledJob, planner: Planner, first: datetime, end: datetime) -> list[Range]:
    """Return the nominal instants from `first` up to `end` that are not settled under the current plan."""
    emitted, later = list[Range](), list[Range]()
    for part in planner.sources(first, end):
        emitted += part.span.ranges()
        later += part.span.ranges() if job.settled_due is None else planner.due_after(part, job.settled_due)
    if job.reported_until is not None:
        later += complement(union(emitted), max(first, plus(job.reported_until, MICRO)), end)
    return union(later)


def _record(schedule: Schedule, start: datetime | None, end: datetime, unsettled: Iterable[Range]) -> Record:
    """Return a record: all occurrences are settled up to `start`, and up to `end` all but the unsettled ones."""
    settled, spans = start, list[datetime]()
    for low, high in _apart(schedule, unsettled)[-_MAX_SPANS:]:
        before = _newest(schedule, settled, low) or plus(low, -MICRO)
        settled = schedule.first_in(high, end) if high < end else None
        if settled is None:
            return Record(before, tuple(spans) or None)
        spans += [before, settled]
    return Record(_newest(schedule, settled, end), tuple(spans) or None)


def _apart(schedule: Schedule, ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges that have occurrences; those without any in between are one."""
    apart: list[Range] = []
    for low, high in ranges:
        if schedule.first_in(low, high) is None:
            continue
        if apart and schedule.first_in(apart[-1][1], low) is None:
            apart[-1] = (apart[-1][0], high)
        else:
            apart.append((low, high))
    return apart


def _newest(schedule: Schedule, after: datetime | None, end: datetime) -> datetime | None:
    """Return the newest occurrence after `after` and before `end`, or else `after`."""
    first = plus(schedule.starts_at, -MICRO) if after is None else after
    newest = schedule.newest(plus(end, -MICRO), 1, first) if first < end else None
    return newest[0] if newest else after


def _all_settled_until(job: SettledJob, planner: Planner, now: datetime) -> datetime | None:
    """Return a lower bound of the first occurrence that is not settled."""
    before = stored_record(job).start
    if job.settled_due is None:
        return before
    unplanned = plus(job.settled_due, MICRO - planner.adjustments.jitter)
    current = plus(min(planner.earliest_nominal(unplanned), _first_unreported(job, now)), -MICRO)
    return current if before is None else max(before, current)


def _first_unreported(job: SettledJob, now: datetime) -> datetime:
    """Return a lower bound of the first skipped occurrence that is not reported."""
    if job.reported_until is None or job.skip_at is None:
        return END
    return job.skip_at if job.skip_at > now + _POSTPONED else plus(job.reported_until, MICRO)


def moved_record(record: Record, before: Planner, after: Planner) -> Record:
    """Return the record by other zone data: neither a settled wall time nor its instant occurs again."""
    if record.settled_until is None:
        return record
    until = max(record.settled_until, _moved(record.settled_until, before, after))
    spans: list[datetime] = []
    for first, last in _pairs(record.unsettled or ()):
        start, end = max(first, _moved(first, before, after)), min(last, _moved(last, before, after))
        if start < end:
            spans += [start, end]
    return Record(until, tuple(spans) or None)


def _moved(instant: datetime, before: Planner, after: Planner) -> datetime:
    """Return the instant of the same wall time; the instant itself if the schedule does not follow the clock."""
    second, micro = to_seconds(instant)
    schedule, other = before.schedule, after.schedule
    if isinstance(schedule, Recurring) and isinstance(other, Recurring):
        if second in schedule.added and second in other.added:
            return instant  # an RDATE in UTC
        return to_instant(after.names.instant(before.names.wall(second)), micro)
    return other.starts_at if isinstance(schedule, Once) and instant == schedule.starts_at else instant


def _pairs(ends: Sequence[datetime]) -> Iterator[tuple[datetime, datetime]]:
    return zip(ends[::2], ends[1::2], strict=True)
