"""Business calendars: open and closed local dates, and the date to which a closed day's occurrences move."""

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from scheduler.domain.recurrence.day_masks import LAST_DAY, WEEK

MAX_MOVE_DAYS = 31  # days that an occurrence may move
_WEEKS = 4  # at least, in FURTHEST days and in a month
FIRST_TARGET, LAST_TARGET = 4, LAST_DAY - 4  # near the limits of datetime, local times have no instants


class OnClosed(StrEnum):
    """The treatment of an occurrence on a closed day."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"
    NEAREST = "nearest"
    NEXT_IN_MONTH = "next_in_month"


# Days are ordinals. Compared by identity, because a calendar may have 10,000 dates.
@dataclass(frozen=True, slots=True, eq=False)
class BusinessCalendar:
    """Closed weekdays, and closed and open dates with display names."""

    weekend: frozenset[int]  # Monday is 0
    closed: Mapping[int, str]
    opened: Mapping[int, str]  # overrides closed and weekend
    valid_until: int = LAST_DAY  # the last day on which closed and opened count
    _opened: tuple[int, ...] = field(init=False, repr=False)
    _most_closed: int = field(init=False, repr=False)  # listed dates within any FURTHEST days

    def __post_init__(self) -> None:
        opened = sorted(day for day in self.opened if day <= min(self.valid_until, LAST_TARGET))
        object.__setattr__(self, "_opened", tuple(opened))
        object.__setattr__(self, "_most_closed", _most_within(sorted(self.closed), MAX_MOVE_DAYS))

    def opens_every_month(self, weekdays: frozenset[int]) -> bool:
        """Return whether it is certain that one of these weekdays is open within any 28 days."""
        # Each weekday occurs at least four times. One more may be lost to a window that daylight saving empties.
        return self._most_closed + 1 < _WEEKS * len(weekdays - self.weekend)

    def is_open(self, day: int) -> bool:
        """Return whether occurrences may be emitted on `day`."""
        if day <= self.valid_until:
            if day in self.opened:
                return True
            if day in self.closed:
                return False
        return (day - 1) % WEEK not in self.weekend

    def closed_name(self, day: int) -> str:
        """Return the name of a closed day; empty for a weekend day without one."""
        return self.closed.get(day, "") if day <= self.valid_until else ""

    def target(self, day: int, on_closed: OnClosed) -> int | None:
        """Return the day on which the occurrences of `day` are emitted; None: they are skipped."""
        if self.is_open(day):
            return day
        if on_closed is OnClosed.SKIP or not FIRST_TARGET <= day <= LAST_TARGET:
            return None
        if on_closed is OnClosed.NEXT_IN_MONTH:
            first, last = _month(day)
            after = self._search(range(day + 1, last + 1))
            return after if after is not None else self._search(range(day - 1, first - 1, -1))
        after = before = None
        if on_closed is not OnClosed.PREVIOUS:
            after = self._search(range(day + 1, day + MAX_MOVE_DAYS + 1))
        if on_closed is not OnClosed.NEXT:
            before = self._search(range(day - 1, day - MAX_MOVE_DAYS - 1, -1))
        if before is None or after is None:
            return after if before is None else before
        return before if day - before <= after - day else after

    def sources(self, day: int, on_closed: OnClosed) -> tuple[int, int]:
        """Return the first and last day whose occurrences are emitted on the open day `day`."""
        # Moves keep the order of days, so the sources of a day are consecutive.
        first = last = day
        while not self.is_open(first - 1) and self.target(first - 1, on_closed) == day:
            first -= 1
        while not self.is_open(last + 1) and self.target(last + 1, on_closed) == day:
            last += 1
        return first, last

    def next_open(self, day: int, weekdays: frozenset[int] | None = None) -> int | None:
        """Return the first open day from `day` on, limited to `weekdays` if given."""
        allowed = frozenset(range(WEEK)) if weekdays is None else weekdays
        if allowed <= self.weekend:  # only listed dates can be open, perhaps years apart
            for index in range(bisect_left(self._opened, day), len(self._opened)):
                if (self._opened[index] - 1) % WEEK in allowed:
                    return self._opened[index]
            return None
        # At most 10,000 dates are closed, so the search is short.
        return self._search(date for date in range(day, LAST_TARGET) if (date - 1) % WEEK in allowed)

    def _search(self, days: Iterable[int]) -> int | None:
        for day in days:
            if FIRST_TARGET <= day <= LAST_TARGET and self.is_open(day):
                return day
        return None


def _most_within(days: list[int], span: int) -> int:
    """Return the largest number of days within a span."""
    return max((number - bisect_left(days, day - span + 1) + 1 for number, day in enumerate(days)), default=0)


def _month(day: int) -> tuple[int, int]:
    """Return the first and the last day of the month that contains `day`."""
    when = date.fromordinal(day)
    first = day - when.day + 1
    return first, first + monthrange(when.year, when.month)[1] - 1
