"""Explain why a schedule never fires, and name the part to change."""

import calendar
from dataclasses import replace
from datetime import datetime

from scheduler.domain.recurrence.build_walls import from_start, rule_walls
from scheduler.domain.recurrence.cron import Cron, CronDays
from scheduler.domain.recurrence.day_masks import DAY, MONTH_LENGTHS, next_day
from scheduler.domain.recurrence.periods import RuleDays
from scheduler.domain.recurrence.rule import Freq, Rule, weekday_name
from scheduler.domain.recurrence.schedule import Recurring

CENTURY = 36_525 * DAY
NOTHING_CHOSEN = "never fires: no period of this rule has as many runs as BYSETPOS asks for"
_NOT_SOON = "would not fire within 100 years of its start"
_MONTHS = tuple(calendar.month_name[1:])
_LONGEST = tuple(days + (days == 28) for days in MONTH_LENGTHS)  # noqa: PLR2004 - February in leap years
_MAX_IN_MONTH = 5
_EPOCH_DAY = 730_120  # 1 January 2000; the next 400 years include every kind of year
_CYCLE = 146_097
_DATE_PARTS = ("bymonth", "byweekno", "byyearday", "bymonthday", "byday")
_CLOCK_PARTS = ("byhour", "byminute", "bysecond")


def never_fires_reason(rule: Rule, dtstart: datetime | None, schedule: Recurring, start: int) -> str:
    """Return the reason that a rule does not fire within a century of its start."""
    if rule.until is not None:
        unending = replace(rule, until=None)
        bounded = schedule.timeline.next_from(start, start + CENTURY) is None
        if not bounded or _fires(unending, dtstart):
            return "never fires: UNTIL comes before the first run"
    reason = _no_day(rule) or _no_day_with(rule, dtstart)
    if reason:
        return f"never fires: {reason}"
    if rule.bysetpos and _fires(replace(rule, bysetpos=()), dtstart):
        return NOTHING_CHOSEN
    if rule.interval > 1 and _fires(replace(rule, interval=1), dtstart):
        parts = _format_parts(rule, _DATE_PARTS + _CLOCK_PARTS)
        steps = f"INTERVAL={rule.interval} counted from {dtstart:%Y-%m-%dT%H:%M:%S}"
        return f"never fires: {steps} does not meet {parts} in 100 years"
    return _NOT_SOON


def cron_never_fires_reason(cron: Cron) -> str:
    """Return the reason that a cron expression does not fire within a century."""
    days = cron.walls.days
    if isinstance(days, CronDays) and days.both and not days.last_workday:
        reason = _no_such_day(days.months, days.monthdays)
        if reason:
            return f"never fires: {reason}"
    if next_day(days, _EPOCH_DAY, _EPOCH_DAY + _CYCLE) is None:
        return "never fires: no day matches both day of month and day of week, and with a * both must match"
    return _NOT_SOON


def _fires(rule: Rule, dtstart: datetime | None) -> bool:
    """Return whether a relaxed rule fires within a century."""
    if dtstart is None:
        return False
    start = dtstart.toordinal() * DAY + dtstart.hour * 3600 + dtstart.minute * 60 + dtstart.second
    return rule_walls(rule, start).next_from(start, start + CENTURY) is not None


def _no_day(rule: Rule) -> str | None:
    """Return the reason if no day of any year matches the date parts."""
    reason = _no_such_day(rule.bymonth, rule.bymonthday)
    if reason is None and next_day(RuleDays(rule), _EPOCH_DAY, _EPOCH_DAY + _CYCLE) is None:
        return _conflict(rule)
    return reason


def _no_day_with(rule: Rule, dtstart: datetime | None) -> str | None:
    """Return the reason if no day matches the date parts together with those from DTSTART."""
    added = from_start(rule, dtstart.toordinal()) if dtstart is not None else {}
    reason = _no_day(replace(rule, **added)) if added else None
    return reason and f"{reason}; {[*added][-1].upper()} comes from DTSTART"


def _no_such_day(months: tuple[int, ...], monthdays: tuple[int, ...]) -> str | None:
    """Return the reason if none of the months is long enough for any of the days."""
    if not months or not monthdays:
        return None
    longest = max(_LONGEST[month - 1] for month in months)
    if any(abs(day) <= longest for day in monthdays):
        return None
    day = min(monthdays, key=abs)
    names = [_MONTHS[month - 1] for month in months]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    verb = "has" if len(names) == 1 else "have"
    return f"{listed} {verb} no day {day}" if day > 0 else f"{listed} {verb} fewer than {-day} days"


def _conflict(rule: Rule) -> str:
    """Return the date parts that exclude each other."""
    if rule.freq == Freq.MONTHLY or rule.bymonth:
        far = [(nth, day) for nth, day in rule.byday if abs(nth) > _MAX_IN_MONTH]
        if far and len(far) == len(rule.byday):
            return f"no month has {abs(far[0][0])} of the weekday {weekday_name(far[0][1])}"
    return f"no day matches {_format_parts(rule, _DATE_PARTS)} together"


def _format_parts(rule: Rule, names: tuple[str, ...]) -> str:
    """Return the parts of a rule in RFC 5545 format."""
    parts = []
    for name in names:
        value = getattr(rule, name)
        if name == "byday":
            value = [f"{nth or ''}{weekday_name(day)}" for nth, day in value]
        if value:
            parts.append(f"{name.upper()}={','.join(str(item) for item in value)}")
    return " and ".join(parts) or "the values from DTSTART"
