"""Compiled schedules: the occurrences after an instant, and how many there were."""

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
_STEPPED = 16  # runs to step through before counting is the faster way to a far one
_YEARS_BEFORE_STEPS = 100  # to count where it could step through all runs
_LEAP = 8  # how many times longer the next jump may be
_YEAR = 366 * DAY


def to_seconds(instant: datetime) -> tuple[int, int]:
    """Return whole seconds on the scale of `calendar`, and microseconds."""
    since = instant - _ORIGIN
    return (since.days + 1) * DAY + since.seconds, since.microseconds


def to_instant(seconds: int, micro: int = 0) -> datetime:
    """Return the UTC datetime of whole seconds on the scale of `calendar`."""
    return _ORIGIN + timedelta(-1, seconds, micro)


def _just_before(instant: datetime) -> datetime:
    return instant - _MICRO if instant > _ORIGIN else _ORIGIN


class Schedule(ABC):
    """When a job runs: strictly increasing UTC instants, none before `starts_at`."""

    __slots__ = ()
    starts_at: datetime

    @abstractmethod
    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None once the schedule is spent."""

    @abstractmethod
    def count(self, after: datetime, until: datetime) -> int:
        """Return how many occurrences there are after `after` and not after `until`."""

    def first(self) -> datetime | None:
        """Return the first occurrence not before `starts_at`."""
        return self.next_after(_just_before(self.starts_at))

    def first_in(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`."""
        found = self.next_after(_just_before(start))
        return found if found is not None and found < end else None

    def fires_at(self, instant: datetime) -> bool:
        """Tell whether `instant` is an occurrence."""
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

        `total` is their number, if it is known already.
        """
        total = self.count(after, until) if total is None else total
        low, found, share = after, total, 2 * limit
        while share < total:  # the newest ones lie near the end: look there before halving the whole
            near = max(after, until - (until - after) * share // total)
            found = self.count(near, until)
            if found >= limit:
                low = near
                break
            share *= 16
        else:
            found = total
        surplus, high = found - limit, until
        while surplus > limit and high - low > timedelta(seconds=1):
            middle = low + (high - low) / 2
            passed = self.count(low, middle)
            if passed <= surplus:
                low, surplus = middle, surplus - passed
            else:
                high = middle
        return list(islice(self.after(low), max(surplus, 0), max(surplus, 0) + min(total, limit)))


@dataclass(frozen=True, slots=True)
class Once(Schedule):
    """One run, at `starts_at`."""

    starts_at: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None once the schedule is spent."""
        return self.starts_at if instant < self.starts_at else None

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many occurrences there are after `after` and not after `until`."""
        return int(after < self.starts_at <= until)


@dataclass(frozen=True, slots=True)
class Every(Schedule):
    """Fixed spacing in elapsed time, computed from the start each time so that it never drifts."""

    starts_at: datetime
    spacing: timedelta

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after `instant`, or None once the schedule is spent."""
        try:
            return self.starts_at + self._passed(instant) * self.spacing
        except OverflowError:
            return None

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many occurrences there are after `after` and not after `until`."""
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
        """Return the first occurrence strictly after `instant`, or None once the schedule is spent."""
        found = self.next_within(self._floor(instant) + 1, END_OF_TIME - 1)
        return None if found is None else to_instant(found, self.micro)

    def first_in(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first occurrence not before `start` and before `end`; the search does not look further."""
        found = self.next_within(self._floor(_just_before(start)) + 1, self._floor(_just_before(end)))
        return None if found is None else to_instant(found, self.micro)

    def next_within(self, instant: int, last: int) -> int | None:
        """Return the first occurrence from the whole second `instant` to `last`, without the fraction."""
        instant = max(instant, self._first)
        end = min(last, self.until)
        found = self.timeline.next_from(instant, end)
        while found in self.excluded:
            found = self.timeline.next_from(found + 1, end)
        if self.added:
            index = bisect_left(self.added, instant)
            if index < len(self.added) and self.added[index] <= last:
                found = self.added[index] if found is None else min(found, self.added[index])
        return found

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many occurrences there are after `after` and not after `until`."""
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


class TooFar(Exception):  # noqa: N818 - a verdict, not an accident
    """The work for finding a run is used up; at the pace so far it comes about `seconds` after the start."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(seconds)


def nth_instant(schedule: Recurring, number: int, years: int, steps: int) -> datetime | None:
    """Return the instant of the `number`th run; None if there is none.

    Count at most `years` years, then step through at most `steps` runs; raise TooFar where that is not enough.
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
    """Return an instant and how many runs after it are missing, a few if the years to count suffice.

    Jump ahead while too few runs have passed; the runs in a jump say how far the next one goes.
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
        # A little short of where it should be: to count too far is work in vain.
        ahead = span * missing * 9 // (passed * 10) if passed else span * _LEAP
        span = min(max(ahead, 1), span * _LEAP)
    return low, missing
