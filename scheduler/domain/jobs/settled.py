"""Which occurrences of a job were emitted or missed, identified by their nominal instants.

Under one plan this follows from the plan: an occurrence is settled if it is due up to `settled_due`, or if it is
skipped and not after `reported_until`. Another plan gives the same occurrences other due times. So a job that is
planned again keeps a record of what was settled before: every occurrence up to `settled_until`, except those
strictly inside one of the spans in `unsettled`, whose ends follow each other. Most jobs have no such span.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import NamedTuple, Protocol

from scheduler.domain.recurrence.moved_days import END, MICRO, plus
from scheduler.domain.recurrence.planner import Planner
from scheduler.domain.recurrence.schedule import Once, Recurring, to_instant, to_seconds

MAX_UNSETTLED = 4_000  # occurrences between settled ones; older ones count as settled
# A report of skipped occurrences may be postponed by this much, so skip_at is not always a nominal instant.
_POSTPONED = timedelta(seconds=15)


class SettledJob(Protocol):
    """A job with the columns that tell which of its occurrences are settled."""

    @property
    def settled_until(self) -> datetime | None:
        """The latest nominal instant that was settled under earlier plans."""

    @property
    def unsettled(self) -> tuple[datetime, ...] | None:
        """Spans before it, whose occurrences were not."""

    @property
    def settled_due(self) -> datetime | None:
        """The latest due time of the occurrences emitted or missed under the current plan."""

    @property
    def reported_until(self) -> datetime | None:
        """Skipped occurrences up to this nominal instant are reported."""

    @property
    def skip_at(self) -> datetime | None:
        """When to report the next ones."""


class Record(NamedTuple):
    """The settled occurrences, whatever the plan."""

    settled_until: datetime | None = None
    unsettled: tuple[datetime, ...] | None = None

    @property
    def start(self) -> datetime | None:
        """Return an instant up to which every occurrence is settled; None if none is."""
        return self.unsettled[0] if self.unsettled else self.settled_until

    def includes(self, nominal: datetime) -> bool:
        """Return whether an occurrence is settled."""
        if self.settled_until is None or nominal > self.settled_until:
            return False
        return not any(after < nominal < before for after, before in _pairs(self.unsettled or ()))


    def including(self, nominals: Iterable[datetime]) -> "Record":
        """Return the record with more occurrences, if it has any."""
        until, spans = self.settled_until, list(self.unsettled or ())
        for nominal in sorted(nominals) if until is not None else ():
            if until is not None and nominal > until:
                spans += [until, nominal]
                until = nominal
                continue
            for index in range(0, len(spans), 2):
                if spans[index] < nominal < spans[index + 1]:
                    spans[index + 1 : index + 1] = [nominal, nominal]
                    break
        return Record(until, tuple(spans) or None)


def stored_record(job: SettledJob) -> Record:
    """Return what was settled under earlier plans."""
    return Record(job.settled_until, job.unsettled)


def settled_record(job: SettledJob, planner: Planner, now: datetime) -> Record:
    """Return what is settled under the plan of `planner` and the earlier ones."""
    stored = stored_record(job)
    marks = [mark for mark in (job.settled_until, job.reported_until) if mark is not None]
    if job.settled_due is not None:
        marks.append(planner.latest_nominal(job.settled_due))
    if not marks:
        return stored
    start, nominals = _newest(planner, _all_settled_until(job, planner, now), max(marks))
    until, spans, opened = start, list[datetime](), False
    for nominal in nominals:
        if stored.includes(nominal) or _is_settled(job, planner, nominal):
            if opened:
                spans += [until or plus(nominals[0], -MICRO), nominal]
            until, opened = nominal, False
        else:
            opened = True
    return Record(until, tuple(spans) or None)


def _is_settled(job: SettledJob, planner: Planner, nominal: datetime) -> bool:
    """Return whether an occurrence is settled under the current plan."""
    due_at = planner.due_of(nominal)
    if due_at is None:
        return job.reported_until is None or nominal <= job.reported_until
    return job.settled_due is not None and due_at <= job.settled_due


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


def _newest(
    planner: Planner, start: datetime | None, until: datetime
) -> tuple[datetime | None, Sequence[datetime]]:
    """Return the newest nominal instants after `start` and not after `until`, with their own start."""
    schedule = planner.schedule
    first = plus(schedule.starts_at, -MICRO) if start is None else start
    some = islice(takewhile(lambda nominal: nominal <= until, schedule.after(first)), MAX_UNSETTLED + 1)
    if len(nominals := list(some)) <= MAX_UNSETTLED:
        return start, nominals
    nominals = schedule.newest_until(until, MAX_UNSETTLED)
    return plus(nominals[0], -MICRO), nominals


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
