"""Describe cron expressions in English; fields without a short description are quoted."""

import re

from scheduler.api.console.date_description import clock_times, days_of_month, months, nth_weekdays, weekdays
from scheduler.api.console.formatting import join_words
from scheduler.domain.recurrence.cron import CronDays, read_cron

_SHORT = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
          "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
_PLAIN = re.compile(r"[0-9]{1,2}(,[0-9]{1,2})*")
_STEP = re.compile(r"\*/([0-9]+)")
_ALL_MONTHS, _ALL_DAYS, _ALL_WEEKDAYS = 12, 31, 7


def describe_cron(text: str) -> str:
    """Describe a valid cron expression: Weekdays at 09:00."""
    cron = read_cron(text)
    days = cron.walls.days
    assert isinstance(days, CronDays)  # noqa: S101 - read_cron returns no other type
    minute, hour, monthday, _, weekday = _SHORT.get(text.strip().lower(), text).upper().split()
    chosen, time = _days(days, monthday, weekday), _time(minute, hour)
    if time.startswith("at "):
        text = f"{chosen or 'every day'} {time}"
    else:
        text = f"{time}{' on ' + chosen if chosen else ''}"
    return text[:1].upper() + text[1:]


def _time(minute: str, hour: str) -> str:
    if _PLAIN.fullmatch(minute) and _PLAIN.fullmatch(hour):
        hours, minutes = (sorted({int(part) for part in field.split(",")}) for field in (hour, minute))
        return clock_times(hours, minutes, (0,))
    if hour == "*":
        return _every(minute, "minute") or f"every hour at minute {minute}"
    every_hours = _every(hour, "hour")
    if _PLAIN.fullmatch(minute) and every_hours:
        return every_hours + ("" if minute in ("0", "00") else f" at minute {minute}")
    return f"{_every(minute, 'minute') or 'at minute ' + minute}, in the hours {hour}"


def _every(field: str, unit: str) -> str:
    if field in ("*", "*/1"):
        return f"every {unit}"
    step = _STEP.fullmatch(field)
    return f"every {step[1]} {unit}s" if step else ""


def _days(days: CronDays, monthday: str, weekday: str) -> str:
    """Describe the days; empty for every day."""
    parts = []
    if not monthday.startswith("*") or len(days.monthdays) < _ALL_DAYS:
        numbers = [f"the {days_of_month(days.monthdays)}"] if days.monthdays else []
        numbers += ["the last weekday"] if days.last_workday else []
        parts.append(f"{join_words(numbers)} of the month")
    if not weekday.startswith("*") or len(days.weekdays) < _ALL_WEEKDAYS:
        names = [weekdays(days.weekdays)] if days.weekdays else []
        names += [f"{nth_weekdays(days.ordinals)} of the month"] if days.ordinals else []
        parts.append(join_words(names))
    text = (", if these are " if days.both else " and ").join(parts)
    if len(days.months) < _ALL_MONTHS:
        text = f"{text or 'every day'} in {months(days.months)}"
    return text
