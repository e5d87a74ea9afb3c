"""Describe schedules in English: Fridays at 09:00 in Europe/Berlin."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scheduler.api.console.cron_description import describe_cron
from scheduler.api.console.date_description import (
    MONTHS,
    WEEKDAYS,
    all_workdays,
    clock_times,
    days_of_month,
    months,
    nth_weekdays,
    weekdays,
)
from scheduler.api.console.formatting import instant, join_words, local, number, ordinal
from scheduler.domain.recurrence import local_time, zone_names
from scheduler.domain.recurrence.moment import read_duration, read_moment
from scheduler.domain.recurrence.rfc5545_stamp import Fault, Form, Stamp
from scheduler.domain.recurrence.rrule_text import SyntaxFaults, read_text
from scheduler.domain.recurrence.rule import Freq, Rule
from scheduler.domain.recurrence.schedule import to_instant

_UNITS = {Freq.YEARLY: "year", Freq.MONTHLY: "month", Freq.WEEKLY: "week", Freq.DAILY: "day", Freq.HOURLY: "hour",
          Freq.MINUTELY: "minute", Freq.SECONDLY: "second"}
_SPACINGS = ((604_800, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def describe_schedule(job: Mapping[str, Any]) -> str:
    """Describe when a job runs; `job` has the schedule fields of a request, and possibly others."""
    if job.get("manual"):
        return "Only when triggered"
    timezone = str(job.get("timezone") or "UTC")
    try:
        if job.get("every") is not None:
            return describe_spacing(job["every"])
        if job.get("cron") is not None:
            return f"{describe_cron(str(job['cron']))} in {timezone}"
        if job.get("rrule") is not None:
            return _describe_rule(job, timezone)
    except (Fault, SyntaxFaults):
        return "a rule that cannot be read"
    return f"Once, {_once(job.get('run_at'), timezone)}" if job.get("run_at") else "Once"


def describe_spacing(every: str | float) -> str:
    """Describe a fixed spacing: Every 15 minutes."""
    seconds = read_duration(every).total_seconds()
    for size, unit in _SPACINGS:
        if seconds >= size and seconds % size == 0:
            return _every(int(seconds // size), unit)
    return f"Every {number(seconds)} seconds"


def _every(interval: int, unit: str) -> str:
    return f"Every {unit}" if interval == 1 else f"Every {interval} {unit}s"


def _once(run_at: Any, timezone: str) -> str:
    """Format the moment of a one-shot; without an offset it is wall time."""
    try:
        moment = read_moment(str(run_at))
    except Fault:
        return str(run_at)
    if moment.offset is not None:
        return local(moment.instant(), timezone)
    return f"{moment.wall:%a} {moment.wall.day} {moment.wall:%b %Y %H:%M} in {moment.zone or timezone}"


def _describe_rule(job: Mapping[str, Any], timezone: str) -> str:
    parsed = read_text(str(job["rrule"]))
    if parsed.dtstart is not None and parsed.dtstart.tzid:
        timezone = parsed.dtstart.tzid
    start = _start(parsed.dtstart, job, timezone)
    text = f"{_period(parsed.rule, start)} in {timezone}"
    text += _end(parsed.rule, timezone)
    for stamps, one, many in ((parsed.exdates, "date left out", "dates left out"), (parsed.rdates, "date added",
                                                                                    "dates added")):
        if stamps:
            text += f", {len(stamps)} {one if len(stamps) == 1 else many}"
    return text


def _start(dtstart: Stamp | None, job: Mapping[str, Any], timezone: str) -> datetime | None:
    """Return the wall time that supplies the parts missing from the rule."""
    if dtstart is not None:
        return to_instant(dtstart.value * (86_400 if dtstart.form is Form.DATE else 1)).replace(tzinfo=None)
    for name in ("run_at", "next_run_at", "created_at"):
        if job.get(name):
            value = job[name]
            moment = read_moment(value) if isinstance(value, str) else None
            if moment is not None and moment.offset is None:
                return moment.wall
            when = moment.instant() if moment else instant(value)
            if when is not None and timezone in zone_names():
                return local_time(when, timezone).replace(tzinfo=None)
    return None


def _period(rule: Rule, start: datetime | None) -> str:
    """Describe the days and times of a rule."""
    if rule.freq > Freq.DAILY:
        return _within_a_day(rule)
    days = _days(rule, start)
    if rule.bymonth and rule.freq != Freq.YEARLY:
        days += f" in {months(rule.bymonth)}"
    if rule.byweekno:
        days += f" in week {join_words([str(week) for week in rule.byweekno])}"
    if rule.byyearday:
        days += f" on day {join_words([ordinal(day) for day in rule.byyearday])} of the year"
    return f"{days} {_times(rule, start)}".rstrip()


def _within_a_day(rule: Rule) -> str:
    text = _every(rule.interval, _UNITS[rule.freq])
    if rule.freq == Freq.HOURLY and rule.byminute:
        text += f" at minute {join_words([f'{minute:02}' for minute in rule.byminute])}"
    if rule.byhour:
        hours = join_words([f"{hour:02}" for hour in rule.byhour])
        text += f" in the {'hours' if len(rule.byhour) > 1 else 'hour'} {hours}"
    if rule.byday:
        text += f" on {weekdays([day for _, day in rule.byday])}"
    if rule.bymonthday:
        text += f" on the {days_of_month(rule.bymonthday)}"
    if rule.bymonth:
        text += f" in {months(rule.bymonth)}"
    return text


def _days(rule: Rule, start: datetime | None) -> str:
    match rule.freq:
        case Freq.YEARLY:
            return _of_a_year(rule, start)
        case Freq.MONTHLY:
            return _of_a_month(rule, start)
    chosen = [day for _, day in rule.byday]
    if rule.freq == Freq.WEEKLY and not chosen and start is not None:
        chosen = [start.weekday()]
    alone = rule.interval == 1 and not rule.bymonthday and not rule.bysetpos
    if chosen and alone:
        return _capital(weekdays(chosen))
    text = _every(rule.interval, _UNITS[rule.freq])
    if chosen:
        text += f" on {weekdays(chosen)}"
    if rule.bymonthday:
        text += f" on the {days_of_month(rule.bymonthday)}"
    return text + _positions(rule)


def _of_a_month(rule: Rule, start: datetime | None) -> str:
    which = "every month" if rule.interval == 1 else f"every {rule.interval} months"
    if rule.byday and rule.bysetpos and not rule.bymonthday and not any(nth for nth, _ in rule.byday):
        positions = join_words([ordinal(position) for position in rule.bysetpos])
        days = [day for _, day in rule.byday]
        name = (
            "weekday" if all_workdays(days) else "day" if len(days) == len(WEEKDAYS) else weekdays(days, one=True)
        )
        return f"The {positions} {name} of {which}"
    if rule.byday and not rule.bymonthday:
        return f"{_capital(nth_weekdays(rule.byday))} of {which}{_positions(rule)}"
    if rule.bymonthday:
        which_days = f"{_capital(weekdays([day for _, day in rule.byday]))} that are the" if rule.byday else "The"
        return f"{which_days} {days_of_month(rule.bymonthday)} of {which}{_positions(rule)}"
    return f"The {ordinal(start.day)} of {which}" if start is not None else _capital(which)


def _of_a_year(rule: Rule, start: datetime | None) -> str:
    which = _every(rule.interval, "year")
    if rule.byday and not rule.byweekno:
        of = f" of {months(rule.bymonth)}" if rule.bymonth else ""
        return f"{which} on {nth_weekdays(rule.byday)}{of}{_positions(rule)}"
    if rule.bymonthday or rule.bymonth:
        days = days_of_month(rule.bymonthday) if rule.bymonthday else ordinal(start.day) if start else "first"
        of = months(rule.bymonth) if rule.bymonth else "every month"
        return f"{which} on the {days} of {of}{_positions(rule)}"
    if rule.byweekno or rule.byyearday:
        return which + (f" on {weekdays([day for _, day in rule.byday])}" if rule.byday else "")
    return f"{which} on {start.day} {MONTHS[start.month - 1]}" if start else which


def _positions(rule: Rule) -> str:
    return f", only the {join_words([ordinal(position) for position in rule.bysetpos])}" if rule.bysetpos else ""


def _times(rule: Rule, start: datetime | None) -> str:
    hours = rule.byhour or ((start.hour,) if start else ())
    minutes = rule.byminute or ((start.minute,) if start else ())
    seconds = rule.bysecond or ((start.second,) if start else (0,))
    return clock_times(hours, minutes, seconds) if hours and minutes else ""


def _end(rule: Rule, timezone: str) -> str:
    if rule.count is not None:
        return ", once" if rule.count == 1 else f", {rule.count:,} times"
    if rule.until is None:
        return ""
    scale = 86_400 if rule.until.form is Form.DATE else 1
    last = to_instant(rule.until.value * scale)
    if rule.until.form is Form.UTC and timezone in zone_names():
        last = local_time(last, timezone)
    return f", until {last.day} {last:%B %Y}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
