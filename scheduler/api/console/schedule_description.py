"""A schedule in words: Fridays at 09:00 in Europe/Berlin."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scheduler.api.console.cron_description import cron_in_words
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
from scheduler.api.console.formatting import instant, listed, local, number, ordinal
from scheduler.domain.recurrence import local_time, zone_names
from scheduler.domain.recurrence.moment import read_duration, read_moment
from scheduler.domain.recurrence.rfc5545_stamp import Fault, Form, Stamp
from scheduler.domain.recurrence.rrule_text import Faulty, read_text
from scheduler.domain.recurrence.rule import Freq, Rule
from scheduler.domain.recurrence.schedule import to_instant

_UNITS = {Freq.YEARLY: "year", Freq.MONTHLY: "month", Freq.WEEKLY: "week", Freq.DAILY: "day", Freq.HOURLY: "hour",
          Freq.MINUTELY: "minute", Freq.SECONDLY: "second"}
_SPACINGS = ((604_800, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def in_words(job: Mapping[str, Any]) -> str:
    """Say when a job runs; `job` has the schedule fields of a request, whatever else it has."""
    timezone = str(job.get("timezone") or "UTC")
    try:
        if job.get("every") is not None:
            return every_in_words(job["every"])
        if job.get("cron") is not None:
            return f"{cron_in_words(str(job['cron']))} in {timezone}"
        if job.get("rrule") is not None:
            return _rule_in_words(job, timezone)
    except (Fault, Faulty):
        return "a rule that cannot be read"
    return f"Once, {_once(job.get('run_at'), timezone)}" if job.get("run_at") else "Once"


def every_in_words(every: str | float) -> str:
    """Say a fixed spacing: Every 15 minutes."""
    seconds = read_duration(every).total_seconds()
    for size, unit in _SPACINGS:
        if seconds >= size and seconds % size == 0:
            return _each(int(seconds // size), unit)
    return f"Every {number(seconds)} seconds"


def _each(interval: int, unit: str) -> str:
    return f"Every {unit}" if interval == 1 else f"Every {interval} {unit}s"


def _once(run_at: Any, timezone: str) -> str:
    """Write the moment of a one-shot; without an offset it is wall time already."""
    try:
        moment = read_moment(str(run_at))
    except Fault:
        return str(run_at)
    if moment.offset is not None:
        return local(moment.instant(), timezone)
    return f"{moment.wall:%a} {moment.wall.day} {moment.wall:%b %Y %H:%M} in {moment.zone or timezone}"


def _rule_in_words(job: Mapping[str, Any], timezone: str) -> str:
    text = read_text(str(job["rrule"]))
    if text.dtstart is not None and text.dtstart.tzid:
        timezone = text.dtstart.tzid
    start = _start(text.dtstart, job, timezone)
    words = f"{_period(text.rule, start)} in {timezone}"
    words += _end(text.rule, timezone)
    for stamps, one, many in ((text.exdates, "date left out", "dates left out"), (text.rdates, "date added",
                                                                                    "dates added")):
        if stamps:
            words += f", {len(stamps)} {one if len(stamps) == 1 else many}"
    return words


def _start(dtstart: Stamp | None, job: Mapping[str, Any], timezone: str) -> datetime | None:
    """Return the wall time that fills in what the rule leaves open."""
    if dtstart is not None:
        return to_instant(dtstart.value * (86_400 if dtstart.form is Form.DATE else 1)).replace(tzinfo=None)
    for name in ("run_at", "next_run_at", "created_at"):
        if job.get(name):
            given = job[name]
            moment = read_moment(given) if isinstance(given, str) else None
            if moment is not None and moment.offset is None:
                return moment.wall
            when = moment.instant() if moment else instant(given)
            if when is not None and timezone in zone_names():
                return local_time(when, timezone).replace(tzinfo=None)
    return None


def _period(rule: Rule, start: datetime | None) -> str:
    """Say the days and times that a rule chooses."""
    if rule.freq > Freq.DAILY:
        return _within_a_day(rule)
    days = _days(rule, start)
    if rule.bymonth and rule.freq != Freq.YEARLY:
        days += f" in {months(rule.bymonth)}"
    if rule.byweekno:
        days += f" in week {listed([str(week) for week in rule.byweekno])}"
    if rule.byyearday:
        days += f" on day {listed([ordinal(day) for day in rule.byyearday])} of the year"
    return f"{days} {_times(rule, start)}".rstrip()


def _within_a_day(rule: Rule) -> str:
    words = _each(rule.interval, _UNITS[rule.freq])
    if rule.freq == Freq.HOURLY and rule.byminute:
        words += f" at minute {listed([f'{minute:02}' for minute in rule.byminute])}"
    if rule.byhour:
        hours = listed([f"{hour:02}" for hour in rule.byhour])
        words += f" in the {'hours' if len(rule.byhour) > 1 else 'hour'} {hours}"
    if rule.byday:
        words += f" on {weekdays([day for _, day in rule.byday])}"
    if rule.bymonthday:
        words += f" on the {days_of_month(rule.bymonthday)}"
    if rule.bymonth:
        words += f" in {months(rule.bymonth)}"
    return words


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
    words = _each(rule.interval, _UNITS[rule.freq])
    if chosen:
        words += f" on {weekdays(chosen)}"
    if rule.bymonthday:
        words += f" on the {days_of_month(rule.bymonthday)}"
    return words + _places(rule)


def _of_a_month(rule: Rule, start: datetime | None) -> str:
    which = "every month" if rule.interval == 1 else f"every {rule.interval} months"
    if rule.byday and rule.bysetpos and not rule.bymonthday and not any(nth for nth, _ in rule.byday):
        places = listed([ordinal(place) for place in rule.bysetpos])
        days = [day for _, day in rule.byday]
        what = (
            "weekday" if all_workdays(days) else "day" if len(days) == len(WEEKDAYS) else weekdays(days, one=True)
        )
        return f"The {places} {what} of {which}"
    if rule.byday and not rule.bymonthday:
        return f"{_capital(nth_weekdays(rule.byday))} of {which}{_places(rule)}"
    if rule.bymonthday:
        which_days = f"{_capital(weekdays([day for _, day in rule.byday]))} that are the" if rule.byday else "The"
        return f"{which_days} {days_of_month(rule.bymonthday)} of {which}{_places(rule)}"
    return f"The {ordinal(start.day)} of {which}" if start is not None else _capital(which)


def _of_a_year(rule: Rule, start: datetime | None) -> str:
    which = _each(rule.interval, "year")
    if rule.byday and not rule.byweekno:
        of = f" of {months(rule.bymonth)}" if rule.bymonth else ""
        return f"{which} on {nth_weekdays(rule.byday)}{of}{_places(rule)}"
    if rule.bymonthday or rule.bymonth:
        days = days_of_month(rule.bymonthday) if rule.bymonthday else ordinal(start.day) if start else "first"
        of = months(rule.bymonth) if rule.bymonth else "every month"
        return f"{which} on the {days} of {of}{_places(rule)}"
    if rule.byweekno or rule.byyearday:
        return which + (f" on {weekdays([day for _, day in rule.byday])}" if rule.byday else "")
    return f"{which} on {start.day} {MONTHS[start.month - 1]}" if start else which


def _places(rule: Rule) -> str:
    return f", only the {listed([ordinal(place) for place in rule.bysetpos])}" if rule.bysetpos else ""


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
