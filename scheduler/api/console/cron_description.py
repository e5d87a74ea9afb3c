"""A cron expression in words; what has no short words is told as it is written."""

import re

from scheduler.api.console.date_description import clock_times, days_of_month, months, nth_weekdays, weekdays
from scheduler.api.console.formatting import listed
from scheduler.domain.recurrence.cron import CronDays, read_cron

_SHORT = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
          "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
_PLAIN = re.compile(r"[0-9]{1,2}(,[0-9]{1,2})*")
_STEP = re.compile(r"\*/([0-9]+)")
_ALL_MONTHS, _ALL_DAYS, _ALL_WEEKDAYS = 12, 31, 7


def cron_in_words(text: str) -> str:
    """Say a cron expression that is known to be right: Weekdays at 09:00."""
    cron = read_cron(text)
    days = cron.walls.days
    assert isinstance(days, CronDays)  # noqa: S101 - read_cron makes no others
    minute, hour, monthday, _, weekday = _SHORT.get(text.strip().lower(), text).upper().split()
    chosen, time = _days(days, monthday, weekday), _time(minute, hour)
    if time.startswith("at "):
        words = f"{chosen or 'every day'} {time}"
    else:
        words = f"{time}{' on ' + chosen if chosen else ''}"
    return words[:1].upper() + words[1:]


def _time(minute: str, hour: str) -> str:
    if _PLAIN.fullmatch(minute) and _PLAIN.fullmatch(hour):
        hours, minutes = (sorted({int(each) for each in field.split(",")}) for field in (hour, minute))
        return clock_times(hours, minutes, (0,))
    if hour == "*":
        return _every(minute, "minute") or f"every hour at minute {minute}"
    hours_said = _every(hour, "hour")
    if _PLAIN.fullmatch(minute) and hours_said:
        return hours_said + ("" if minute in ("0", "00") else f" at minute {minute}")
    return f"{_every(minute, 'minute') or 'at minute ' + minute}, in the hours {hour}"


def _every(field: str, unit: str) -> str:
    if field in ("*", "*/1"):
        return f"every {unit}"
    step = _STEP.fullmatch(field)
    return f"every {step[1]} {unit}s" if step else ""


def _days(days: CronDays, monthday: str, weekday: str) -> str:
    """Say the days; empty where every day is meant."""
    said = []
    if not monthday.startswith("*") or len(days.monthdays) < _ALL_DAYS:
        numbers = [f"the {days_of_month(days.monthdays)}"] if days.monthdays else []
        numbers += ["the last weekday"] if days.last_workday else []
        said.append(f"{listed(numbers)} of the month")
    if not weekday.startswith("*") or len(days.weekdays) < _ALL_WEEKDAYS:
        names = [weekdays(days.weekdays)] if days.weekdays else []
        names += [f"{nth_weekdays(days.ordinals)} of the month"] if days.ordinals else []
        said.append(listed(names))
    words = (", if these are " if days.both else " and ").join(said)
    if len(days.months) < _ALL_MONTHS:
        words = f"{words or 'every day'} in {months(days.months)}"
    return words
