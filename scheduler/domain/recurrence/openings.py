"""Openings of a sending window on open days, for which occurrences outside the window wait."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.domain.recurrence.business_calendar import MAX_MOVE_DAYS, BusinessCalendar
from scheduler.domain.recurrence.day_masks import DAY, WEEK
from scheduler.domain.recurrence.moved_days import END, moment, plus
from scheduler.domain.recurrence.named_wall_times import near
from scheduler.domain.recurrence.window import Hours

EARLIEST = timedelta(days=MAX_MOVE_DAYS + 3)  # the furthest move back by a calendar, and the longest wait


@dataclass(slots=True, eq=False)
class Openings(Hours):
    """A window in a zone, with the calendar that closes some of its days."""

    calendar: BusinessCalendar | None = None

    def opening_after(self, second: int) -> int | None:
        """Return the first opening on an open day after an instant, at most 31 days later."""
        low, high, _ = near(self.clock, second)
        for day in range((second + low) // DAY - 1, (second + high) // DAY + MAX_MOVE_DAYS + 1):
            opening = self.opening_on(day)
            if opening is not None and opening > second >= self.waits_since(day):
                return opening
        return None

    def opening_on(self, day: int) -> int | None:
        """Return the instant at which the window opens on `day`, if the day is open."""
        span, calendar = self.span(day), self.calendar
        return span[0] if span is not None and (calendar is None or calendar.is_open(day)) else None

    def day_of(self, opening: int) -> int | None:
        """Return the open day on which the window opens at an instant."""
        low, high, _ = near(self.clock, opening)
        days = range((opening + low) // DAY - 1, (opening + high) // DAY + 1)
        return next((day for day in days if self.opening_on(day) == opening), None)

    def waits_since(self, day: int) -> int:
        """Return the earliest instant of an occurrence that may wait for an opening on `day`."""
        return self.clock.to_utc((day - MAX_MOVE_DAYS) * DAY)

    def next_midnight(self, second: int) -> int:
        """Return the next local midnight: the earliest time at which another opening may come into reach."""
        today = (second + near(self.clock, second).low) // DAY
        midnights = (self.clock.to_utc(day * DAY) for day in range(today, today + 4))
        return next(midnight for midnight in midnights if midnight > second)

    def shut_since(self, second: int, start: datetime) -> datetime:
        """Return the earliest instant of occurrences that may wait for an opening not before `start`."""
        last = (second + near(self.clock, second).high) // DAY
        for day in range(last, last - MAX_MOVE_DAYS - 3, -1):
            opening = self.opening_on(day)
            if opening is not None and moment(opening) < start:
                return moment(opening)
        return plus(start, -EARLIEST)

    def next_candidate(self, second: int) -> datetime:
        """Return the next instant whose occurrences may be emitted, after an instant with no opening in time."""
        calendar, window = self.calendar, self.window
        if calendar is None:
            return END
        low, high, _ = near(self.clock, second)
        candidates = []
        # It may wait for the next opening, from 31 days before it.
        day = calendar.next_open((second + high) // DAY, window.days)
        while day is not None and self.span(day) is None:
            day = calendar.next_open(day + 1, window.days)
        if day is not None:
            candidates.append(self.waits_since(day))
        # Or it may be inside a window that opened on the previous day, a closed one.
        if window.closes <= window.opens:
            mornings = frozenset((weekday + 1) % WEEK for weekday in window.days)
            day = calendar.next_open((second + low) // DAY + 1, mornings)
            if day is not None:
                candidates.append(day * DAY - near(self.clock, day * DAY + DAY // 2).high)
        return moment(max(second + 1, min(candidates))) if candidates else END
