"""Parse the job form into the fields of a request; problems are reported by field."""

import json
import re
from collections.abc import Mapping
from typing import Any

from scheduler.api.console.adjustment_form import read_adjustments
from scheduler.api.console.date_description import WEEKDAYS
from scheduler.api.console.form_fields import LEFT_OUT, ParsedForm, put, read_number
from scheduler.api.console.targets.forms import read_target
from scheduler.domain.recurrence import RUN_NOW
from scheduler.domain.recurrence.rule import weekday_name
from scheduler.domain.schedule_fields import SCHEDULE_FIELDS

UNITS = {"second": "S", "minute": "M", "hour": "H", "day": "D", "week": "W"}
FREQUENCIES = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
# The request's fields that the form shows. When a job is edited, all others are kept.
SHOWN_FIELDS = frozenset({
    *SCHEDULE_FIELDS, "manual", "paused", "job_type", "name", "description", "tenant", "priority", "on_missed",
    "route", "max_lateness", "payload", "target", "run",
})
# Numbers of a run policy, and their fields in the form.
POLICY_NUMBERS = (
    ("max_attempts", "max_attempts"), ("delay", "delay"), ("timeout", "run_timeout"),
    ("max_running", "max_running"),
)


def read_schedule(form: Mapping[str, str]) -> ParsedForm:
    """Return the schedule fields: the rule, and what adjusts it."""
    read = ParsedForm()
    kind = form.get("when", "once")
    if kind == "manual":
        read.fields["manual"] = True
    elif kind == "now":
        read.fields["run_at"] = RUN_NOW
    elif kind == "once":
        put(read, "run_at", form.get("run_at"))
    elif kind == "every":
        read.fields["every"] = _spacing(form, read)
        put(read, "run_at", form.get("starts"))
    elif kind == "days":
        read.fields["rrule"] = _rule(form, read)
        put(read, "run_at", form.get("starts"))
    else:
        put(read, form["rule_kind"] if form.get("rule_kind") in ("rrule", "cron", "every") else "rrule",
             (form.get("rule") or "").replace("\r\n", "\n"))
        put(read, "run_at", form.get("starts"))
    put(read, "timezone", form.get("timezone"))
    if kind != "manual":
        read_adjustments(form, read)
    return read


def read_form(form: Mapping[str, str], stored: Mapping[str, Any] | None = None) -> ParsedForm:
    """Return the whole request; fields of `stored`, the edited request, that the form does not show are kept."""
    read = read_schedule(form)
    read.fields |= {name: value for name, value in (stored or {}).items() if name not in SHOWN_FIELDS}
    for name in ("job_type", "name", "tenant"):
        put(read, name, form.get(name))
    for name, default in (("priority", "normal"), ("on_missed", "latest")):
        if form.get(name) and (form[name] != default or (stored or {}).get(name) is not None):
            read.fields[name] = form[name]
    put(read, "description", (form.get("description") or "").replace("\r\n", "\n"))
    if form.get("paused"):
        read.fields["paused"] = True
    put(read, "route", form.get("route"))
    put(read, "max_lateness", read_number(form, read, "max_lateness"))
    read.fields["payload"] = _json(form, read, "payload", {})
    target = read_target(form, read, (stored or {}).get("target") or {})
    if target is not None:
        read.fields["target"] = target
    if form.get("tracked") or target is not None:
        read.fields["run"] = _policy(form, read, (stored or {}).get("run") or {})
    return read


def _json(form: Mapping[str, str], read: ParsedForm, name: str, default: Any) -> Any:
    text = (form.get(name) or "").strip()
    if not text:
        return default
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        read.problems[name] = f"is not JSON: {error}"
        return default


def _spacing(form: Mapping[str, str], read: ParsedForm) -> str:
    amount, unit = (form.get("every_count") or "1").strip(), form.get("every_unit", "minute")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", amount):
        read.problems["every"] = f"must be a number, not {amount[:40]!r}"
        return "PT1M"
    letter = UNITS.get(unit, "M")
    return f"P{amount}{letter}" if letter in "DW" else f"PT{amount}{letter}"


def _rule(form: Mapping[str, str], read: ParsedForm) -> str:
    """Return the RRULE for: every 2 weeks on Mon and Fri at 09:00; the last Friday of the month at 09:00."""
    frequency = FREQUENCIES.get(form.get("days_unit", "week"), "WEEKLY")
    parts = [f"FREQ={frequency}"]
    interval = (form.get("days_count") or "1").strip()
    if interval != "1":
        parts.append(f"INTERVAL={interval}")
    if frequency == "WEEKLY":
        days = [weekday_name(day) for day in range(len(WEEKDAYS)) if form.get(f"weekday_{day}")]
        parts += [f"BYDAY={','.join(days)}"] if days else []
    if frequency in ("MONTHLY", "YEARLY"):
        if frequency == "YEARLY":
            parts.append(f"BYMONTH={form.get('month') or '1'}")
        parts += _day_of_month(form)
    return ";".join([*parts, *_time_of_day(form, read)])


def _day_of_month(form: Mapping[str, str]) -> list[str]:
    position, day = form.get("place") or "1", form.get("place_of") or "day"
    if day == "day":
        return [f"BYMONTHDAY={position}"]
    if day == "weekday":
        return ["BYDAY=MO,TU,WE,TH,FR", f"BYSETPOS={position}"]
    return [f"BYDAY={position}{day}"]


def _time_of_day(form: Mapping[str, str], read: ParsedForm) -> list[str]:
    text = (form.get("at") or "09:00").strip()
    match = _TIME.fullmatch(text)
    if not match:
        read.problems["rrule"] = f"the time of day must have the format 09:00, not {text[:40]!r}"
        return []
    return [f"BYHOUR={int(match[1])}", f"BYMINUTE={int(match[2])}", f"BYSECOND={int(match[3] or 0)}"]


def _policy(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy: shown fields from the form, others from the stored policy."""
    policy = dict(stored)
    policy.pop("max_running", None)
    for name, input_name in POLICY_NUMBERS:
        value = read_number(form, read, input_name, about=f"run.{name}")
        if value is not LEFT_OUT:
            policy[name] = value
    for name in ("backoff", "overlap"):
        if form.get(name) in ("exponential", "linear", "fixed", "allow", "skip", "wait"):
            policy[name] = form[name]
    if policy.get("overlap", "allow") == "allow":
        policy.pop("max_running", None)  # the form hides it
    return policy
