"""Occurrences of a schedule after calendar, window and jitter, ordered by due_at."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from scheduler.domain.recurrence.business_calendar import MAX_MOVE_DAYS, BusinessCalendar, OnClosed
from scheduler.domain.recurrence.day_masks import DAY, WEEK
from scheduler.domain.recurrence.jitter import jitter_delay
from scheduler.domain.recurrence.moved_days import END, MICRO, Days, MovedDays, PlainDays, Span, moment, plus
from scheduler.domain.recurrence.named_wall_times import NamedWalls, named_walls
from scheduler.domain.recurrence.openings import EARLIEST, Openings
from scheduler.domain.recurrence.ranges import FOREVER, Range
from scheduler.domain.recurrence.schedule import Schedule, to_seconds
from scheduler.domain.recurrence.source_bounds import earliest_moved, earliest_source, latest_source
from scheduler.domain.recurrence.spec import Spec, compile_schedule
from scheduler.domain.recurrence.window import Window
from scheduler.domain.recurrence.zones import Clock

MAX_SPREAD = 3_600  # occurrences within a jitter, all of which are examined to find the next one
_YEAR = timedelta(days=366)
_CENTURY = timedelta(days=36_525)
_LATEST = timedelta(days=2 * MAX_MOVE_DAYS + 5)  # the furthest move forward by calendar, window and jitter
_MAX_WITHOUT_OPENING = 1_000  # occurrences per search; each usually advances it by weeks
_MAX_EXAMINED = 2_000  # nominal occurrences per search for skipped ones


class Mover(StrEnum):
    """Cause of a changed instant."""

    CALENDAR = "calendar"
    WINDOW = "window"
    JITTER = "jitter"


class SkipReason(StrEnum):
    """Reason for not emitting an occurrence."""

    CALENDAR = "calendar"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Adjustments:
    """The calendar, window and jitter of a job."""

    calendar: BusinessCalendar | None = None
    on_closed: OnClosed = OnClosed.SKIP
    window: Window | None = None
    jitter: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class PlannedOccurrence:
    """An occurrence to emit."""

    nominal_at: datetime
    due_at: datetime
    moved: tuple[Mover, ...] = ()
    merged: int = 0  # other occurrences that it replaces
    planned_at: datetime | None = None  # due_at before jitter


@dataclass(frozen=True, slots=True)
class SkippedOccurrence:
    """An occurrence that is not emitted."""

    nominal_at: datetime
    reason: SkipReason
    into: datetime | None = None  # if merged: the nominal instant of the emitted occurrence


@dataclass(slots=True)
class _Group:
    """Occurrences with the same instant before jitter."""

    planned_at: datetime
    nominal_at: datetime  # of the emitted occurrence
    spans: list[Span]

    def size(self) -> int:
        """Return the number of occurrences."""
        return sum(span.count() for span in self.spans)

    def newest(self, limit: int) -> list[datetime]:
        """Return the newest occurrences, at most `limit`, in order."""
        return sorted({nominal for span in self.spans for nominal in span.newest(limit)})[-limit:]


class Part(NamedTuple):
    """Occurrences to which a window does the same: it keeps all, or moves all to one opening."""

    span: Span
    opening: datetime | None  # which all of them wait for; None: they are inside the window


class Planner:
    """A schedule with adjustments. Pure: equal arguments give equal occurrences."""

    __slots__ = ("_days", "_hours", "_job_id", "_newest", "adjustments", "names", "schedule")

    def __init__(
        self, spec: Spec, adjustments: Adjustments, job_id: UUID | None = None, local: Clock | None = None
    ) -> None:
        """Compile the schedule; without `job_id` there is no jitter. `local` is a clock of other zone data."""
        self.schedule: Schedule = compile_schedule(spec, local)
        self.names: NamedWalls = named_walls(self.schedule, spec, local)
        self.adjustments = adjustments
        calendar, window = adjustments.calendar, adjustments.window
        self._days: Days = PlainDays(self.schedule)
        if calendar is not None:
            self._days = MovedDays(self.schedule, self.names, calendar, adjustments.on_closed)
        self._hours = None if window is None else Openings(window, self.names.clock, calendar=calendar)
        self._job_id = job_id if adjustments.jitter else None
        self._newest: _Group | None = None  # cached: consecutive queries often concern the same group

    def limit(self, ranges: Sequence[Range] | None) -> None:
        """Emit only occurrences with nominal instants in these ranges: the others are settled."""
        self._days.limit(ranges)
        self._newest = None

    def all(self) -> Iterator[PlannedOccurrence]:
        """Yield every occurrence in the order of due_at."""
        return self.after(plus(self.schedule.starts_at, -EARLIEST))

    def after(self, instant: datetime) -> Iterator[PlannedOccurrence]:
        """Yield the occurrences due after `instant` in the order of due_at; equal ones by nominal_at."""
        if self._job_id is None:
            for planned in self._planned(plus(instant, MICRO)):
                yield self._occurrence(planned)
            return
        waiting: list[tuple[datetime, datetime, PlannedOccurrence]] = []
        for planned in self._planned(plus(instant, MICRO - self.adjustments.jitter)):
            while waiting and waiting[0][0] < planned:  # jitter only delays: none can be due before this
                yield heappop(waiting)[2]
            occurrence = self._occurrence(planned)
            if occurrence.due_at > instant:
                heappush(waiting, (occurrence.due_at, occurrence.nominal_at, occurrence))
        while waiting:
            yield heappop(waiting)[2]

    def emits(self) -> bool:
        """Return whether any occurrence is emitted within 100 years of the start."""
        start = self.schedule.starts_at
        return self._first(plus(start, -EARLIEST), plus(start, _CENTURY + _LATEST)) is not None

    def crowd(self) -> int:
        """Return the largest number of occurrences within one jitter, in the first year.

        The search ends at the first number above MAX_SPREAD.
        """
        first = self.schedule.first()
        return 0 if first is None else self._crowd(plus(first, -MICRO), plus(first, _YEAR))

    def _crowd(self, after: datetime, until: datetime) -> int:
        span = max(until - after, self.adjustments.jitter)
        number = self.schedule.count(after, plus(after, span))
        if number <= MAX_SPREAD or span == self.adjustments.jitter:
            return number
        middle = after + (until - after) / 2
        earlier = self._crowd(after, middle)
        return earlier if earlier > MAX_SPREAD else max(earlier, self._crowd(middle, until))

    def skipped(self, after: datetime, until: datetime, limit: int) -> list[SkippedOccurrence]:
        """Return the first skipped occurrences with nominal instants in (after, until]."""
        skipped: list[SkippedOccurrence] = []
        nominal, end = plus(after, MICRO), plus(until, MICRO)
        for _ in range(_MAX_EXAMINED):
            following = self.schedule.first_in(nominal, end) if nominal < end else None
            if following is None or len(skipped) == limit:
                break
            nominal = self._undisturbed_until(following)
            if nominal == following:
                occurrence = self.skip_of(following)
                if occurrence is not None:
                    skipped.append(occurrence)
                nominal = plus(following, MICRO)
        return skipped

    def calendar_skips(
        self, after: datetime, until: datetime, limit: int, most: int
    ) -> tuple[list[datetime], datetime]:
        """Return the first nominal instants in (after, until] that no event covers, and the end of the search.

        It ends early after `limit` instants, or after `most` examined occurrences.
        """
        skips: list[datetime] = []
        if self._skips_none():
            return skips, until
        nominal, end = plus(after, MICRO), plus(until, MICRO)
        for _ in range(most):
            following = self.schedule.first_in(nominal, end) if nominal < end else None
            if following is None:
                return skips, until
            nominal = self._covered_until(following)
            if nominal == following:
                if self.planned_of(following) is None:
                    skips.append(following)
                    if len(skips) == limit:
                        return skips, following
                nominal = plus(following, MICRO)
        return skips, plus(nominal, -MICRO)

    def _skips_none(self) -> bool:
        """Return whether it is certain that every occurrence has a day and an opening to move to."""
        calendar, window = self.adjustments.calendar, self.adjustments.window
        if calendar is None or self.adjustments.on_closed is OnClosed.SKIP:
            return False
        return calendar.opens_every_month(frozenset(range(WEEK)) if window is None else window.days)

    def _covered_until(self, nominal: datetime) -> datetime:
        """Return the end of an occurrence's day if the whole day is emitted, perhaps moved or merged."""
        days, adjustments = self._days, self.adjustments
        if self._hours is not None or not isinstance(days, MovedDays) or adjustments.calendar is None:
            return nominal if self._hours is not None else END
        day = self.names.wall(to_seconds(nominal)[0]) // DAY
        low, _, shifts = self.names.offsets(day)
        covered = adjustments.calendar.target(day, adjustments.on_closed) is not None
        return moment((day + 1) * DAY - low) if covered and not shifts else nominal

    def planned_of(self, nominal: datetime) -> datetime | None:
        """Return an occurrence's instant before jitter, perhaps that of an event for several; None: skipped."""
        moved = self._days.moved(nominal)
        return None if moved is None else self._in_window(moved)

    def due_of(self, nominal: datetime) -> datetime | None:
        """Return the due time of an occurrence, which may be merged into another; None if it is skipped."""
        planned = self.planned_of(nominal)
        return planned if planned is None or self._job_id is None else self._occurrence(planned).due_at

    def parts(self, spans: Iterable[Span]) -> Iterator[Part]:
        """Split spans by the effect of the window; skipped occurrences are omitted."""
        hours = self._hours
        if hours is None:
            yield from (Part(span, None) for span in spans)
            return
        for span in spans:
            first, last = span.moved_bounds()
            second, end = to_seconds(first)[0], to_seconds(last)[0] + 1
            while second < end:
                closes = hours.end(second)
                opening = hours.opening_after(second) if closes is None else None
                until = closes or min(hours.next_start(second) or end, hours.next_midnight(second))
                if closes is not None or opening is not None:
                    part = span.between(moment(second), moment(min(until, end)))
                    yield Part(part, None if opening is None else moment(opening))
                second = until

    def sources(self, first: datetime, end: datetime) -> Iterator[Part]:
        """Yield the emitted and settled occurrences with nominal instants from `first` up to `end`, exclusive."""
        if first < end:
            yield from self.parts(self._days.sources(first, end))

    def due_after(self, part: Part, instant: datetime) -> Iterator[Range]:
        """Yield the nominal instants of occurrences that are due after `instant`."""
        span, jitter = part.span, self.adjustments.jitter if self._job_id is not None else timedelta()
        at = span.at if part.opening is None else part.opening
        if at is not None:
            if at > instant or self._delayed(self._group(at).nominal_at, at) > instant:
                yield from span.ranges()
            return
        following = plus(instant, MICRO - span.shift)
        for undecided in span.within([(plus(following, -jitter), following)]):
            for nominal in undecided.nominals():
                planned = plus(nominal, span.shift)
                event = nominal if planned == nominal else self._group(planned).nominal_at
                if self._delayed(event, planned) > instant:
                    yield nominal, plus(nominal, MICRO)
        for later in span.within([(following, FOREVER)]):
            yield from later.ranges()

    def count(self, start: datetime, end: datetime) -> int:
        """Return the number of occurrences with instants before jitter from `start` up to `end`, exclusive."""
        if self._hours is None:
            return sum(span.count() for span in self._days.spans(start, end))
        earliest = min(start, self._hours.shut_since(to_seconds(start)[0], start))
        number = 0
        for part in self.parts(self._days.spans(earliest, end)):
            if part.opening is None:
                number += part.span.between(start, end).count()
            elif start <= part.opening < end:
                number += part.span.count()
        return number

    def count_due(self, after: datetime, until: datetime) -> int:
        """Return the number of occurrences due after `after` and not after `until`."""
        if self._job_id is None:
            return self.count(plus(after, MICRO), plus(until, MICRO))
        jitter = self.adjustments.jitter
        first, end = plus(after, MICRO - jitter), plus(until, MICRO)
        return self.count(first, end) - sum(
            1 + occurrence.merged
            for start, last in ((first, after), (max(plus(after, MICRO), plus(end, -jitter)), until))
            for planned in takewhile(lambda planned: planned <= last, self._planned(start))  # noqa: B023 - consumed here
            if not after < (occurrence := self._occurrence(planned)).due_at <= until
        )

    def earliest_planned(self, nominal: datetime) -> datetime:
        """Return a lower bound of the instants before jitter of the occurrences after a nominal instant."""
        return earliest_moved(self._days, nominal)  # a window only delays

    def earliest_nominal(self, planned: datetime) -> datetime:
        """Return a lower bound of the nominal instants of occurrences not planned earlier, before jitter."""
        if self._hours is not None:
            planned = self._hours.shut_since(to_seconds(planned)[0], planned)
        return earliest_source(self._days, planned)

    def latest_nominal(self, planned: datetime) -> datetime:
        """Return an upper bound of the nominal instants of occurrences not planned later, before jitter."""
        return latest_source(self._days, planned)

    def opening_for(self, instant: datetime) -> datetime | None:
        """Return the next opening if the window is shut at an instant; None if it is open, or without a window.

        If no window opens on an open day within 31 days, return the next day.
        """
        second = to_seconds(instant)[0]
        if self._hours is None or self._hours.end(second) is not None:
            return None
        opening = self._hours.opening_after(second)
        return plus(instant, timedelta(days=1)) if opening is None else moment(opening)

    def skip_of(self, nominal: datetime) -> SkippedOccurrence | None:
        """Return the skipped occurrence with its reason; None if it is emitted."""
        planned = self.planned_of(nominal)
        if planned is None:
            return SkippedOccurrence(nominal, SkipReason.CALENDAR)
        group = self._group(planned)
        if group.nominal_at == nominal or not any(span.includes(nominal) for span in group.spans):
            return None
        return SkippedOccurrence(nominal, SkipReason.MERGED, group.nominal_at)

    def merged(self, occurrence: PlannedOccurrence, limit: int) -> list[datetime]:
        """Return the newest nominal instants that are merged into an occurrence, at most `limit`, in order."""
        group = self._group(occurrence.planned_at or occurrence.due_at)
        return [nominal for nominal in group.newest(limit + 1) if nominal != group.nominal_at][-limit:]

    def steps(self, nominal: datetime) -> tuple[datetime | None, datetime | None]:
        """Return the instants of an occurrence after the calendar and after the window."""
        moved = self._days.moved(nominal)
        return moved, None if moved is None else self._in_window(moved)

    def _undisturbed_until(self, nominal: datetime) -> datetime:
        """Return the end of an occurrence's day if the whole day is emitted, otherwise its own instant."""
        days = self._days
        if self._hours is not None or not isinstance(days, MovedDays):
            return nominal if self._hours is not None else END
        day = self.names.wall(to_seconds(nominal)[0]) // DAY
        low, _, shifts = self.names.offsets(day)
        return nominal if shifts or not days.alone(day) else moment((day + 1) * DAY - low)

    def _planned(self, start: datetime) -> Iterator[datetime]:
        """Yield the instants before jitter, from `start` on."""
        planned = self._first(start, plus(start, _CENTURY))
        while planned is not None:
            yield planned
            start = plus(planned, MICRO)
            planned = self._first(start, plus(start, _CENTURY)) if start < END else None

    def _first(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first instant before jitter not before `start` and before `end`."""
        if self._hours is None:
            return self._days.first(start, end)
        hours, days = self._hours, self._days
        candidate, without_opening = days.first(hours.shut_since(to_seconds(start)[0], start), end), 0
        while candidate is not None and without_opening < _MAX_WITHOUT_OPENING:
            second = to_seconds(candidate)[0]
            closes = hours.end(second)
            if closes is not None:
                if candidate >= start:
                    return candidate
                candidate = days.first(min(start, moment(closes)), end)
                continue
            opening = hours.opening_after(second)
            if opening is not None:
                # It waits. An occurrence inside a window that opens on a closed day may be earlier.
                inside = self._first_inside(max(start, candidate), moment(opening))
                return moment(opening) if inside is None else inside
            candidate, without_opening = days.first(hours.next_candidate(second), end), without_opening + 1
        return None

    def _first_inside(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first moved instant inside a window."""
        hours = self._hours
        assert hours is not None  # noqa: S101 - called with a window only
        candidate = self._days.first(start, end)
        while candidate is not None:
            second = to_seconds(candidate)[0]
            if hours.end(second) is not None:
                return candidate
            following = hours.next_start(second)
            candidate = None if following is None else self._days.first(moment(following), end)
        return None

    def _in_window(self, instant: datetime) -> datetime | None:
        """Return the instant after the window; None if no window opens in time."""
        second = to_seconds(instant)[0]
        if self._hours is None or self._hours.end(second) is not None:
            return instant
        opening = self._hours.opening_after(second)
        return None if opening is None else moment(opening)

    def _group(self, planned: datetime) -> _Group:
        """Return the occurrences with this instant before jitter."""
        if self._newest is not None and self._newest.planned_at == planned:
            return self._newest
        waiting = self._waiting(planned) if self._hours is not None else ()
        spans = [*self._days.spans(planned, plus(planned, MICRO)), *waiting]
        group = _Group(planned, planned, spans)
        if not any(span.includes(planned) for span in spans):
            firsts = [first for span in spans if (first := span.first_nominal()) is not None]
            group.nominal_at = min(firsts, default=planned)
        self._newest = group
        return group

    def _waiting(self, planned: datetime) -> Iterator[Span]:
        """Yield the occurrences outside the window that wait for its opening at an instant."""
        hours = self._hours
        assert hours is not None  # noqa: S101 - called with a window only
        second, fraction = to_seconds(planned)
        opening = hours.day_of(second)
        if opening is None or fraction:
            return
        start = to_seconds(hours.shut_since(second, planned))[0]
        start = max(start, hours.waits_since(opening))
        # Occurrences between windows, which may also open on closed days.
        while start < second:
            closes = hours.end(start)
            if closes is not None:
                start = closes
                continue
            following = hours.next_start(start)
            end = second if following is None else min(second, following)
            yield from self._days.spans(moment(start), moment(end))
            start = end

    def _occurrence(self, planned: datetime) -> PlannedOccurrence:
        """Return the occurrence to emit for all occurrences with this instant before jitter."""
        if self._hours is None and isinstance(self._days, PlainDays):
            nominal, merged = planned, 0
        else:
            group = self._group(planned)
            nominal, merged = group.nominal_at, group.size() - 1
        due = self._delayed(nominal, planned)
        if due == nominal:
            return PlannedOccurrence(nominal, due, (), merged, planned)
        moved = self._days.moved(nominal)
        movers = []
        if moved != nominal:
            movers.append(Mover.CALENDAR)
        if planned != moved:
            movers.append(Mover.WINDOW)
        if due != planned:
            movers.append(Mover.JITTER)
        return PlannedOccurrence(nominal, due, tuple(movers), merged, planned)

    def _delayed(self, nominal: datetime, planned: datetime) -> datetime:
        """Return an occurrence's instant after jitter."""
        if self._job_id is None:
            return planned
        limit = self.adjustments.jitter
        closes = None if self._hours is None else self._hours.end(to_seconds(planned)[0])
        if closes is not None:
            limit = min(limit, moment(closes) - planned)
        return min(END, plus(planned, jitter_delay(self._job_id, nominal, limit)))
