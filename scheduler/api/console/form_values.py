"""Convert a stored job to the values of the job form."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.adjustment_form import adjustment_values
from scheduler.api.console.form import POLICY_NUMBERS
from scheduler.api.console.form_fields import number_text, pretty
from scheduler.api.console.targets.forms import target_values
from scheduler.domain.recurrence import zone, zone_names
from scheduler.domain.recurrence.moment import read_duration, read_moment
from scheduler.domain.recurrence.rfc5545_stamp import Fault
from scheduler.domain.recurrence.rrule_text import SyntaxFaults, read_text
from scheduler.domain.recurrence.rule import Freq, Rule, weekday_name

_SPACINGS = ((604_800, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_UNITS = {Freq.DAILY: "day", Freq.WEEKLY: "week", Freq.MONTHLY: "month", Freq.YEARLY: "year"}
_WORKDAYS = tuple((0, day) for day in range(5))


def values_of(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the form's fields for a job; a rule that the form cannot express is shown as text."""
    texts = ("job_type", "name", "description", "tenant", "priority", "on_missed", "route", "timezone")
    values = {name: str(job[name]) for name in texts if job.get(name) is not None}
    if job.get("max_lateness") is not None:
        values["max_lateness"] = number_text(job["max_lateness"])
    values["payload"] = pretty(job.get("payload") or {})
    return (values | _when(job) | adjustment_values(job) | target_values(job.get("target") or {})
            | _policy(job))


def _when(job: Mapping[str, Any]) -> dict[str, str]:
    starts = _wall(job.get("run_at"), str(job.get("timezone") or "UTC"))
    values = {"starts": starts} if starts else {}
    if job.get("every") is not None:
        return values | _spacing(job["every"])
    if job.get("cron") is not None:
        return values | {"when": "rule", "rule_kind": "cron", "rule": str(job["cron"])}
    if job.get("rrule") is not None:
        as_days = _days(str(job["rrule"]))
        raw = {"when": "rule", "rule_kind": "rrule", "rule": str(job["rrule"])}
        return values | (as_days if as_days is not None else raw)
    return {"when": "manual"} if job.get("manual") else {"when": "once", "run_at": starts}


def _wall(run_at: Any, timezone: str) -> str:
    """Return a moment for a date-time field: wall time in the job's zone."""
    if run_at is None:
        return ""
    try:
        moment = read_moment(run_at.isoformat() if isinstance(run_at, datetime) else str(run_at))
        if moment.offset is None:
            return moment.wall.isoformat()
        local = moment.instant().astimezone(zone(timezone if timezone in zone_names() else "UTC"))
    except (Fault, OverflowError):  # the zone has no such wall time
        return str(run_at)
    return local.replace(tzinfo=None).isoformat()


def _spacing(every: Any) -> dict[str, str]:
    try:
        length = every if isinstance(every, timedelta) else read_duration(every)
    except Fault:
        return {"when": "rule", "rule_kind": "every", "rule": str(every)}
    seconds = length.total_seconds()
    size, unit = next(((size, unit) for size, unit in _SPACINGS if seconds % size == 0), (1, "second"))
    return {"when": "every", "every_count": f"{seconds / size:.6f}".rstrip("0").rstrip("."), "every_unit": unit}


def _days(text: str) -> dict[str, str] | None:
    """Return the form's fields for a rule, or None if the form cannot express it."""
    try:
        read = read_text(text)
    except SyntaxFaults:
        return None
    rule = read.rule
    extra = (
        read.dtstart,
        read.rdates,
        read.exdates,
        rule.count,
        rule.until,
        rule.byweekno,
        rule.byyearday,
        rule.wkst,
    )
    times = (rule.byhour, rule.byminute, rule.bysecond)
    if any(extra) or rule.freq not in _UNITS or any(len(values) != 1 for values in times):
        return None
    days = _weekly(rule) if rule.freq in (Freq.DAILY, Freq.WEEKLY) else _placed(rule)
    if days is None:
        return None
    hour, minute, second = (values[0] for values in times)
    at = f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
    return days | {"when": "days", "days_unit": _UNITS[rule.freq], "days_count": str(rule.interval), "at": at}


def _weekly(rule: Rule) -> dict[str, str] | None:
    if rule.bymonth or rule.bymonthday or rule.bysetpos or (rule.byday and rule.freq == Freq.DAILY):
        return None
    return {f"weekday_{day}": "on" for _, day in rule.byday}


def _placed(rule: Rule) -> dict[str, str] | None:
    """Return the fields for a day of a month or year."""
    month = {"month": str(rule.bymonth[0])} if len(rule.bymonth) == 1 else {}
    if bool(month) != (rule.freq == Freq.YEARLY) or (rule.bymonth and not month):
        return None
    if len(rule.bymonthday) == 1 and not rule.byday and not rule.bysetpos:
        return month | {"place": str(rule.bymonthday[0]), "place_of": "day"}
    if rule.bymonthday:
        return None
    if rule.byday == _WORKDAYS and len(rule.bysetpos) == 1:
        return month | {"place": str(rule.bysetpos[0]), "place_of": "weekday"}
    if len(rule.byday) == 1 and rule.byday[0][0] and not rule.bysetpos:
        nth, day = rule.byday[0]
        return month | {"place": str(nth), "place_of": weekday_name(day)}
    return None


def _policy(job: Mapping[str, Any]) -> dict[str, str]:
    run = job.get("run")
    if run is None:
        return {}
    values = {"tracked": "on"}
    for name, values_shown in POLICY_NUMBERS:
        if run.get(name) is not None:
            values[values_shown] = number_text(run[name])
    for name in ("backoff", "overlap"):
        if isinstance(run.get(name), str):
            values[name] = run[name]
    return values
