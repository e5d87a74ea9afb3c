"""Compiled schedules: find and count occurrences."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from scheduler.domain.recurrence.day_masks import DAY, END_OF_TIME
from scheduler.domain.recurrence.timeline import Timeline

_ORIGIN = datetime(1, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_BEGINNING = DAY
_STEPPED = 16  # stepping through fewer runs is faster than counting
_YEARS_BEFORE_STEPS = 100  # to count if stepping through all runs is possible
_LEAP = 8  # maximum growth factor of a jump
_YEAR = 366 * DAY


def to_seconds(instant: datetime) -> tuple[int, int]:
    """Return whole seconds since ordinal 0, and microseconds."""
    since = instant - _ORIGIN
    return (since.days + 1) * DAY + since.seconds, since.microseconds


def to_instant(seconds: int, micro: int = 0) -> datetime:
    """Return the UTC datetime of whole seconds since ordinal 0."""
    return _ORIGIN + timedelta(-1, seconds, micro)


def _just_before(instant: datetime) -> datetime:
    return instant - _MICRO if instant > _ORIGIN else _ORIGIN


class Schedule(ABC):
    """Occurrences of a job: strictly increasing UTC instants, none before `starts_at`."""

    __slots__ = ()
    starts_at: datetime

    @abstractmethod
    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None if there are no more."""

    @abstractmethod
    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of occurrences after `after` and not after `until`."""

    def first(self) -> datetime | None:
        """Return the first occurrence not before `starts_at`."""
        return self.starts_at  # next_after could not return the very first instant of the calendar

    def first_in(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`."""
        first = self.next_after(_just_before(start))
        return first if first is not None and first < end else None

    def fires_at(self, instant: datetime) -> bool:
        """Return whether `instant` is an occurrence."""
        return self.next_after(_just_before(instant)) == instant

    def newest_until(self, until: datetime, limit: int) -> list[datetime]:
        """Return the newest occurrences not after `until`, at most `limit`, in order."""
        return self.newest(until, limit, _just_before(self.starts_at))

    def since(self, instant: datetime) -> Iterator[datetime]:
        """Yield the occurrences not before `instant`."""
        return self.after(_just_before(instant))

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the occurrences strictly after `instant`."""
        following = self.next_after(instant)
        while following is not None:
            yield following
            following = self.next_after(following)

    def newest(
        self, until: datetime, limit: int, after: datetime, total: int | None = None
    ) -> list[datetime]:
        """Return the newest occurrences after `after` and not after `until`, at most `limit`, in order.

        `total` is their number, if known.
        """
        total = self.count(after, until) if total is None else total
        low, count, share = after, total, 2 * limit
        while share < total:  # the newest ones are near the end: search there before halving the whole
            near = max(after, until - (until - after) * share // total)
            count = self.count(near, until)
            if count >= limit:
                low = near
                break
            share *= 16
        else:
            count = total
        surplus, high = count - limit, until
        while surplus > limit and high - low > timedelta(seconds=1):
            middle = low + (high - low) / 2
            skipped = self.count(low, middle)
            if skipped <= surplus:
                low, surplus = middle, surplus - skipped
            else:
                high = middle
        return list(islice(self.after(low), max(surplus, 0), max(surplus, 0) + min(total, limit)))


@dataclass(frozen=True, slots=True)
class Once(Schedule):
    """One run, at `starts_at`."""

    starts_at: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None if there are no more."""
        return self.starts_at if instant < self.starts_at else None

    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of occurrences after `after` and not after `until`."""
        return int(after < self.starts_at <= until)


NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Never(Schedule):
    """No runs."""

    starts_at: datetime = NEVER

    def first(self) -> None:
        """Return None."""

    def next_after(self, instant: datetime) -> None:
        """Return None."""

    def count(self, after: datetime, until: datetime) -> int:  # noqa: ARG002 - the interface
        """Return 0."""
        return 0


@dataclass(frozen=True, slots=True)
class Every(Schedule):
    """Fixed interval in elapsed time, always computed from the start so that it never drifts."""

    starts_at: datetime
    spacing: timedelta

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None if there are no more."""
        try:
            return self.starts_at + self._passed(instant) * self.spacing
        except OverflowError:
            return None

    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of occurrences after `after` and not after `until`."""
        return max(0, self._passed(until) - self._passed(after))

    def _passed(self, instant: datetime) -> int:
        return 0 if instant < self.starts_at else (instant - self.starts_at) // self.spacing + 1


@dataclass(slots=True)
class Recurring(Schedule):
    """A rule or cron expression with added and excluded instants, all shifted by a fraction of a second."""

    starts_at: datetime
    timeline: Timeline
    micro: int = 0
    until: int = END_OF_TIME - 1  # bounds the rule, not the added instants
    added: tuple[int, ...] = ()  # in order, none excluded
    excluded: frozenset[int] = frozenset()
    _first: int = field(init=False)

    def __post_init__(self) -> None:
        seconds, micro = to_seconds(self.starts_at)
        self._first = max(_BEGINNING, seconds + (micro > self.micro))

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None if there are no more."""
        second = self.next_within(self._floor(instant) + 1, END_OF_TIME - 1)
        return None if second is None else to_instant(second, self.micro)

    def first(self) -> datetime | None:
        """Return the first occurrence not before `starts_at`."""
        second = self.next_within(self._first, END_OF_TIME - 1)
        return None if second is None else to_instant(second, self.micro)

    def first_in(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`; the search ends at `end`."""
        second = self.next_within(self._floor(_just_before(start)) + 1, self._floor(_just_before(end)))
        return None if second is None else to_instant(second, self.micro)

    def next_within(self, instant: int, last: int) -> int | None:
        """Return the first occurrence from the whole second `instant` to `last`, without the fraction."""
        instant = max(instant, self._first)
        end = min(last, self.until)
        second = self.timeline.next_from(instant, end)
        while second in self.excluded:
            second = self.timeline.next_from(second + 1, end)
        if self.added:
            index = bisect_left(self.added, instant)
            if index < len(self.added) and self.added[index] <= last:
                second = self.added[index] if second is None else min(second, self.added[index])
        return second

    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of occurrences after `after` and not after `until`."""
        first, last = max(self._floor(after) + 1, self._first), self._floor(until)
        bound = min(last, self.until, END_OF_TIME - 1)
        total = self.timeline.count(first, bound + 1)
        total -= sum(self._in_rule(instant) for instant in self.excluded if first <= instant <= bound)
        extra = self.added[bisect_left(self.added, first) : bisect_right(self.added, last)]
        return total + sum(not self._in_rule(instant) for instant in extra)

    def _in_rule(self, instant: int) -> bool:
        return instant <= self.until and self.timeline.next_from(instant, instant) is not None

    def _floor(self, instant: datetime) -> int:
        """Return the last whole second of the unshifted rule not after `instant`."""
        seconds, micro = to_seconds(instant)
        return seconds - (micro < self.micro)


class TooFar(Exception):  # noqa: N818 - an expected outcome, not a failure
    """The search limit for a run is exhausted; the run is estimated `seconds` after the start."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(seconds)


def nth_instant(schedule: Recurring, number: int, years: int, steps: int) -> datetime | None:
    """Return the instant of the `number`th run; None if there is none.

    Count at most `years` years, then step through at most `steps` runs. Raises TooFar if that is not enough.
    """
    start = to_seconds(schedule.starts_at)[0] - 1
    low, missing = start, number
    if number > _STEPPED:
        end = min(schedule.until, END_OF_TIME - 1)
        if number <= steps:
            years = min(years, _YEARS_BEFORE_STEPS)
        low, missing = _counted(schedule, start, number, end, years)
        if missing > steps and low < end:
            raise TooFar((low - start) * number // max(number - missing, 1))
    for _ in range(missing):
        following = schedule.next_within(low + 1, END_OF_TIME - 1)
        if following is None:
            return None
        low = following
    return to_instant(low, schedule.micro)


def _counted(schedule: Recurring, low: int, missing: int, end: int, years: int) -> tuple[int, int]:
    """Return an instant and the number of runs still missing after it, few if `years` is enough.

    Jump ahead while too few runs have passed; the runs in a jump determine the length of the next one.
    """
    span, most = missing, END_OF_TIME
    left = years * _YEAR
    while missing > _STEPPED and low < end and left > 0:
        span = max(1, min(span, most, end - low, left))
        left -= span + _YEAR
        passed = schedule.timeline.count(low + 1, low + span + 1)
        if passed >= missing:
            most = span - 1
            span = min(span // 2, span * max(missing - _STEPPED // 2, 1) // passed) if span > 1 else 0
            if span < 1:
                break
            continue
        low, missing, most = low + span, missing - passed, max(most - span, 0) or END_OF_TIME
        # Aim slightly short of the target, because counting too far is wasted work.
        ahead = span * missing * 9 // (passed * 10) if passed else span * _LEAP
        span = min(max(ahead, 1), span * _LEAP)
    return low, missing
