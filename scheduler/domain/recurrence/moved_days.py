"""Occurrences after applying the calendar: the occurrences of a local day move together.

Moves keep the order of days. The occurrences of an open day come from consecutive days, its sources. A source is
one span of the nominal schedule, or a few around a clock change. So a search examines few days and a count counts
nominal occurrences: the cost does not depend on their number.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from scheduler.domain.recurrence.business_calendar import MAX_MOVE_DAYS, BusinessCalendar, OnClosed
from scheduler.domain.recurrence.day_masks import DAY, END_OF_TIME
from scheduler.domain.recurrence.named_wall_times import NamedWalls
from scheduler.domain.recurrence.ranges import Range, clip
from scheduler.domain.recurrence.schedule import Schedule, to_instant, to_seconds

MICRO = timedelta(microseconds=1)
BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_MAX_MOVE = timedelta(days=MAX_MOVE_DAYS + 3)  # with clock changes of up to a day
_REMEMBERED = 128  # days


def plus(instant: datetime, delay: timedelta) -> datetime:
    """Add a delay, clamped to the range of datetime."""
    try:
        return instant + delay
    except OverflowError:
        return END if delay > timedelta() else BEGINNING


def moment(second: int) -> datetime:
    """Return the instant of a whole second, clamped to the range of datetime."""
    return to_instant(min(max(second, DAY), END_OF_TIME - 1))


@dataclass(slots=True)
class Span:
    """Nominal instants from `first` up to `end` that move together: by `shift`, or all to `at`."""

    schedule: Schedule
    first: datetime
    end: datetime
    shift: timedelta = timedelta()
    at: datetime | None = None
    only: tuple[int, ...] | None = None  # limited to these whole seconds, in order
    but: tuple[int, ...] = ()  # except these whole seconds, in order

    def first_moved(self, start: datetime) -> datetime | None:
        """Return the first moved instant not before `start`."""
        if self.at is not None:
            return self.at if self.at >= start and self.first_nominal() is not None else None
        nominal = self.between(start, END).first_nominal()
        return None if nominal is None else plus(nominal, self.shift)

    def between(self, start: datetime, end: datetime) -> "Span":
        """Return the part with moved instants from `start` up to `end`, exclusive."""
        if self.at is not None:
            first, last = (self.first, self.end) if start <= self.at < end else (self.first, self.first)
        else:
            first, last = max(self.first, plus(start, -self.shift)), min(self.end, plus(end, -self.shift))
        return Span(self.schedule, first, last, self.shift, self.at, self.only, self.but)

    def moved_bounds(self) -> tuple[datetime, datetime]:
        """Return bounds of the moved instants, both included."""
        if self.at is not None:
            return self.at, self.at
        return plus(self.first, self.shift), plus(self.end, self.shift - MICRO)

    def within(self, ranges: Sequence[Range]) -> "Iterator[Span]":
        """Yield the parts with nominal instants in these ranges."""
        for first, end in clip(self.first, self.end, ranges):
            yield replace(self, first=first, end=end)

    def ranges(self) -> Iterator[Range]:
        """Yield the ranges of its nominal instants."""
        if self.only is not None:
            for second in self.only:
                yield from clip(self.first, self.end, [(moment(second), moment(second + 1))])
            return
        first = self.first
        for second in self.but:
            if first < moment(second) < self.end:
                yield first, moment(second)
            first = max(first, moment(second + 1))
        if first < self.end:
            yield first, self.end

    def first_nominal(self) -> datetime | None:
        """Return the first nominal instant."""
        return next(self.nominals(), None)

    def nominals(self) -> Iterator[datetime]:
        """Yield the nominal instants."""
        if self.only is not None:
            for second in self.only[bisect_left(self.only, to_seconds(self.first)[0]) :]:
                start, end = max(self.first, moment(second)), min(self.end, moment(second + 1))
                if start >= end:
                    return
                yield from Span(self.schedule, start, end).nominals()
            return
        start = self.first
        while start < self.end and (nominal := self.schedule.first_in(start, self.end)) is not None:
            start = plus(nominal, MICRO)
            if self._belongs(nominal):
                yield nominal
            else:
                start = self._after_run(nominal)

    def includes(self, nominal: datetime) -> bool:
        """Return whether the occurrence with this nominal instant is in the span."""
        inside = self.first <= nominal < self.end
        return inside and self.schedule.fires_at(nominal) and self._belongs(nominal)

    def count(self) -> int:
        """Return the number of occurrences."""
        if self.first >= self.end:
            return 0
        if self.end - self.first == MICRO:
            return int(self.first_nominal() is not None)
        if self.only is not None or self.but:  # around a gap
            return sum(1 for _ in self.nominals())
        return self.schedule.count(plus(self.first, -MICRO), plus(self.end, -MICRO))

    def newest(self, limit: int) -> list[datetime]:
        """Return the newest nominal instants, at most `limit`, in order."""
        if self.first >= self.end:
            return []
        if self.only is not None or self.but:
            return list(self.nominals())[-limit:]
        return self.schedule.newest(plus(self.end, -MICRO), limit, plus(self.first, -MICRO))

    def _belongs(self, nominal: datetime) -> bool:
        if self.only is None and not self.but:
            return True
        second = to_seconds(nominal)[0]
        return not _has(self.but, second) and (self.only is None or _has(self.only, second))

    def _after_run(self, nominal: datetime) -> datetime:
        """Return the first instant after consecutive seconds that do not belong to the span."""
        second = to_seconds(nominal)[0]
        index = bisect_left(self.but, second)
        while index < len(self.but) and self.but[index] == second:
            index, second = index + 1, second + 1
        return moment(second)


def _has(seconds: tuple[int, ...], second: int) -> bool:
    index = bisect_left(seconds, second)
    return index < len(seconds) and seconds[index] == second


class Days(Protocol):
    """The occurrences of a schedule after applying the calendar."""

    def limit(self, ranges: Sequence[Range] | None) -> None:
        """Leave out occurrences with nominal instants outside these ranges."""

    def first(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`."""

    def moved(self, nominal: datetime) -> datetime | None:
        """Return the moved instant of an occurrence; None if it is skipped."""

    def spans(self, start: datetime, end: datetime) -> Iterator[Span]:
        """Yield the occurrences with moved instants from `start` up to `end`, exclusive."""

    def sources(self, first: datetime, end: datetime) -> Iterator[Span]:
        """Yield the occurrences with nominal instants from `first` up to `end`, exclusive, without limits."""


@dataclass(slots=True, eq=False)
class PlainDays:
    """Occurrences without a calendar."""

    schedule: Schedule
    _ranges: Sequence[Range] | None = None

    def limit(self, ranges: Sequence[Range] | None) -> None:
        """Leave out occurrences with nominal instants outside these ranges."""
        self._ranges = ranges

    def first(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`."""
        if self._ranges is None:
            return self.schedule.first_in(start, end) if start < end else None
        instants = (self.schedule.first_in(first, last) for first, last in clip(start, end, self._ranges))
        return next((instant for instant in instants if instant is not None), None)

    def moved(self, nominal: datetime) -> datetime | None:
        """Return the moved instant of an occurrence; None if it is skipped."""
        return nominal

    def spans(self, start: datetime, end: datetime) -> Iterator[Span]:
        """Yield the occurrences with moved instants from `start` up to `end`, exclusive."""
        span = Span(self.schedule, start, end)
        yield from (span,) if self._ranges is None else span.within(self._ranges)

    def sources(self, first: datetime, end: datetime) -> Iterator[Span]:
        """Yield the occurrences with nominal instants from `first` up to `end`, exclusive, without limits."""
        yield Span(self.schedule, first, end)


@dataclass(slots=True, eq=False)
class MovedDays:
    """Occurrences moved by a calendar."""

    schedule: Schedule
    names: NamedWalls
    calendar: BusinessCalendar
    on_closed: OnClosed
    _sources: dict[int, tuple[int, int]] = field(default_factory=dict)
    _spans: dict[int, tuple[Span, ...]] = field(default_factory=dict)
    _ranges: Sequence[Range] | None = None

    def limit(self, ranges: Sequence[Range] | None) -> None:
        """Leave out occurrences with nominal instants outside these ranges."""
        self._ranges = ranges

    def moved(self, nominal: datetime) -> datetime | None:
        """Return the moved instant of an occurrence; None if it is skipped."""
        wall = self.names.wall(to_seconds(nominal)[0])
        day = wall // DAY
        target = self.calendar.target(day, self.on_closed)
        if target is None or target == day:
            return nominal if target == day else None
        return to_instant(self.names.instant(wall + (target - day) * DAY), nominal.microsecond)

    def first(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`."""
        second = to_seconds(start)[0]
        day: int | None = (second + self.names.offsets(second // DAY).low) // DAY
        earliest: datetime | None = None
        while day is not None:
            # Around a clock change a day can begin before the previous day has ended.
            begins = moment(day * DAY - self.names.offsets(day).high)
            if begins >= (end if earliest is None else earliest):
                break
            day = self._next_day(day, end)
            if day is None:
                break
            for span in self._of_day(day):
                moved = self._first_moved(span, start)
                if moved is not None and moved < (end if earliest is None else earliest):
                    earliest = moved
            day += 1
        return earliest

    def spans(self, start: datetime, end: datetime) -> Iterator[Span]:
        """Yield the occurrences with moved instants from `start` up to `end`, exclusive."""
        low, high = to_seconds(start)[0], to_seconds(end)[0]
        day = (low + self.names.offsets(low // DAY).low) // DAY
        last = (high + self.names.offsets(high // DAY).high) // DAY
        while day <= last:
            if self.calendar.is_open(day):
                for span in self._of_day(day):
                    part = span.between(start, end)
                    if part.first < part.end:
                        yield from (part,) if self._ranges is None else part.within(self._ranges)
            day += 1

    def sources(self, first: datetime, end: datetime) -> Iterator[Span]:
        """Yield the occurrences with nominal instants from `first` up to `end`, exclusive, without limits."""
        high = to_seconds(end)[0]
        last = (high + self.names.offsets(high // DAY).high) // DAY
        for day in range(self.names.earliest_day(to_seconds(first)[0]), last + 1):
            target = self.calendar.target(day, self.on_closed)
            if target is not None:
                for span in self._move(day, target):
                    yield from span.within([(first, end)])

    def alone(self, day: int) -> bool:
        """Return whether the occurrences named on `day` stay there and no others move to it."""
        return self.calendar.is_open(day) and self._sources_of(day) == (day, day)

    def _next_day(self, day: int, end: datetime) -> int | None:
        """Return the next open day that may have occurrences; None if none has before `end`."""
        furthest = plus(end, _MAX_MOVE)
        following = self.calendar.next_open(day)
        while following is not None:
            if moment(following * DAY - self.names.offsets(following).high) >= end:
                return None
            first, last = self._sources_of(following)
            nominal = self.schedule.first_in(moment(first * DAY - self.names.offsets(first).high), furthest)
            if nominal is None:
                return None
            named = self.names.earliest_day(to_seconds(nominal)[0])
            if named <= last:
                return following
            target = self.calendar.target(named, self.on_closed)
            if target is not None:
                return max(target, following + 1)
            following = self.calendar.next_open(max(named, following + 1))
        return None

    def _sources_of(self, day: int) -> tuple[int, int]:
        if day not in self._sources:
            if len(self._sources) >= _REMEMBERED:
                self._sources.clear()
            self._sources[day] = self.calendar.sources(day, self.on_closed)
        return self._sources[day]

    def _first_moved(self, span: Span, start: datetime) -> datetime | None:
        """Return the first moved instant not before `start`, of an occurrence that the limits leave."""
        if self._ranges is None:
            return span.first_moved(start)
        # A settled record cuts a day into hundreds of ranges: only those from `start` on are examined.
        moved = (part.first_moved(start) for part in span.between(start, END).within(self._ranges))
        return next((instant for instant in moved if instant is not None), None)

    def _of_day(self, day: int) -> tuple[Span, ...]:
        """Return the occurrences of an open day, without limits."""
        if day not in self._spans:
            if len(self._spans) >= _REMEMBERED:
                self._spans.clear()
            first, last = self._sources_of(day)
            self._spans[day] = tuple(
                span for source in range(first, last + 1) for span in self._move(source, day)
            )
        return self._spans[day]

    def _move(self, source: int, day: int) -> Iterator[Span]:
        """Yield the occurrences named on `source`, moved to `day`."""
        here, there = self.names.offsets(source), self.names.offsets(day)
        days = (day - source) * DAY
        if not here.shifts and not there.shifts:
            first = source * DAY - here.low
            shift = timedelta(seconds=days + here.low - there.low)
            yield Span(self.schedule, moment(first), moment(first + DAY), shift)
            return
        for piece in self.names.pieces(source):
            if not days:
                yield Span(self.schedule, moment(piece.first), moment(piece.end), only=piece.only, but=piece.but)
                continue
            delay = piece.offset + days  # from the nominal instant to the moved wall time
            for first, end, offset, at in self.names.stretches(day):
                low, high = max(piece.first, first - delay), min(piece.end, end - delay)
                if low < high:
                    yield Span(self.schedule, moment(low), moment(high), timedelta(seconds=delay - offset),
                               None if at is None else moment(at), piece.only, piece.but)
