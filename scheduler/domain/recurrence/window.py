"""Sending windows: the hours of a day, in local time, in which an event may be emitted."""

from dataclasses import dataclass, field

from scheduler.domain.recurrence.business_calendar import FIRST_TARGET, LAST_TARGET
from scheduler.domain.recurrence.day_masks import DAY, WEEK
from scheduler.domain.recurrence.named_wall_times import near
from scheduler.domain.recurrence.zones import Clock

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_REMEMBERED = 512  # days
_EMPTY_DAYS = 400  # no zone leaves a window empty for this many consecutive days


@dataclass(frozen=True, slots=True)
class Window:
    """Opening and closing wall times of a window, and the weekdays on which it opens."""

    opens: int  # seconds of the day
    closes: int  # not after `opens`: on the next day
    days: frozenset[int] = frozenset(range(WEEK))  # Monday is 0

    @property
    def text(self) -> str:
        """Return the window with its days, such as 09:00-18:00,MO,TU."""
        days = () if len(self.days) == WEEK else (WEEKDAYS[day] for day in sorted(self.days))
        return ",".join((str(self), *days))

    @classmethod
    def of(cls, text: str) -> "Window":
        """Return the window of a stored text."""
        hours, *days = text.split(",")
        opens, closes = (int(end[:2]) * 3600 + int(end[3:]) * 60 for end in hours.split("-"))
        return cls(opens, closes, frozenset(WEEKDAYS.index(day) for day in days) or frozenset(range(WEEK)))

    def __str__(self) -> str:
        ends = (self.opens, self.closes)
        return "-".join(f"{second // 3600:02d}:{second // 60 % 60:02d}" for second in ends)


@dataclass(slots=True, eq=False)
class Hours:
    """A window in a zone: its spans of instants, in whole seconds."""

    window: Window
    clock: Clock
    _spans: dict[int, tuple[int, int] | None] = field(default_factory=dict)

    def span(self, day: int) -> tuple[int, int] | None:
        """Return the instants at which the window of `day` opens and closes; None if it does not open."""
        if day not in self._spans:
            if len(self._spans) >= _REMEMBERED:
                self._spans.clear()
            self._spans[day] = self._span(day)
        return self._spans[day]

    def _span(self, day: int) -> tuple[int, int] | None:
        window = self.window
        if (day - 1) % WEEK not in window.days or not FIRST_TARGET <= day <= LAST_TARGET:
            return None
        start = self.clock.to_utc(day * DAY + window.opens)
        end = self.clock.to_utc((day + (window.closes <= window.opens)) * DAY + window.closes)
        return (start, end) if start < end else None  # daylight saving can leave it empty

    def end(self, second: int) -> int | None:
        """Return the closing instant of the window that is open at `second`; None if none is open."""
        low, high, _ = near(self.clock, second)
        latest = None
        for day in range((second + low) // DAY - 1, (second + high) // DAY + 1):
            span = self.span(day)
            if span is not None and span[0] <= second < span[1]:
                latest = span[1] if latest is None else max(latest, span[1])
        return latest

    def next_start(self, second: int) -> int | None:
        """Return the first opening after `second`, on an open or a closed day."""
        first = (second + near(self.clock, second)[0]) // DAY - 1
        for day in range(first, first + _EMPTY_DAYS):
            span = self.span(day)
            if span is not None and span[0] > second:
                return span[0]
        return None
