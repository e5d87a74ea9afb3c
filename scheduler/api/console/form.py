"""What people fill in, turned into the fields of a request; what cannot be read is told beside its field."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.api.console.date_description import WEEKDAYS
from scheduler.domain.recurrence.rule import weekday_name

UNITS = {"second": "S", "minute": "M", "hour": "H", "day": "D", "week": "W"}
FREQUENCIES = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}
METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_LEFT_OUT = object()


@dataclass(slots=True)
class ParsedForm:
    """The fields that a form asks for, and what is wrong with it, by the request's field."""

    fields: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def read_schedule(form: Mapping[str, str]) -> ParsedForm:
    """Return the schedule fields: run_at, rrule, cron, every and timezone."""
    read = ParsedForm()
    kind = form.get("when", "once")
    if kind == "once":
        _put(read, "run_at", form.get("run_at"))
    elif kind == "every":
        read.fields["every"] = _spacing(form, read)
        _put(read, "run_at", form.get("starts"))
    elif kind == "days":
        read.fields["rrule"] = _rule(form, read)
        _put(read, "run_at", form.get("starts"))
    else:
        _put(read, form["rule_kind"] if form.get("rule_kind") in ("rrule", "cron", "every") else "rrule",
             (form.get("rule") or "").replace("\r\n", "\n"))
        _put(read, "run_at", form.get("starts"))
    _put(read, "timezone", form.get("timezone"))
    return read


def read_form(form: Mapping[str, str], stored: Mapping[str, Any] | None = None) -> ParsedForm:
    """Return the whole request; of `stored`, the request that is edited, what the form does not show is kept."""
    read = read_schedule(form)
    for name in ("job_type", "name", "tenant"):
        _put(read, name, form.get(name))
    for name, usual in (("priority", "normal"), ("on_missed", "latest")):
        if form.get(name) and (form[name] != usual or (stored or {}).get(name) is not None):
            read.fields[name] = form[name]
    _put(read, "route", form.get("route"))
    _put(read, "max_lateness", _number(form, read, "max_lateness"))
    read.fields["payload"] = _json(form, read, "payload", {})
    target = _target(form, read, (stored or {}).get("target") or {})
    if target is not None:
        read.fields["target"] = target
    if form.get("tracked") or target is not None:
        read.fields["run"] = _policy(form, read, (stored or {}).get("run") or {})
    return read


def _put(read: ParsedForm, name: str, value: Any) -> None:
    text = value.strip() if isinstance(value, str) else value
    if text not in (None, "", _LEFT_OUT):
        read.fields[name] = text


def _number(form: Mapping[str, str], read: ParsedForm, name: str, *, about: str | None = None) -> Any:
    """Return a whole or fractional number of a field, or nothing."""
    text = (form.get(name) or "").strip()
    if not text:
        return _LEFT_OUT
    try:
        value = float(text)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        read.problems[about or name] = f"must be a number, not {text[:40]!r}"
        return _LEFT_OUT


def _json(form: Mapping[str, str], read: ParsedForm, name: str, usual: Any) -> Any:
    text = (form.get(name) or "").strip()
    if not text:
        return usual
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        read.problems[name] = f"is not JSON: {error}"
        return usual


def _spacing(form: Mapping[str, str], read: ParsedForm) -> str:
    amount, unit = (form.get("every_count") or "1").strip(), form.get("every_unit", "minute")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", amount):
        read.problems["every"] = f"must be a number, not {amount[:40]!r}"
        return "PT1M"
    letter = UNITS.get(unit, "M")
    return f"P{amount}{letter}" if letter in "DW" else f"PT{amount}{letter}"


def _rule(form: Mapping[str, str], read: ParsedForm) -> str:
    """Write the rule of: every 2 weeks on Mon and Fri at 09:00; on the last Friday of the month at 09:00."""
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
    place, what = form.get("place") or "1", form.get("place_of") or "day"
    if what == "day":
        return [f"BYMONTHDAY={place}"]
    if what == "weekday":
        return ["BYDAY=MO,TU,WE,TH,FR", f"BYSETPOS={place}"]
    return [f"BYDAY={place}{what}"]


def _time_of_day(form: Mapping[str, str], read: ParsedForm) -> list[str]:
    text = (form.get("at") or "09:00").strip()
    match = _TIME.fullmatch(text)
    if not match:
        read.problems["rrule"] = f"the time of day is written 09:00, not {text[:40]!r}"
        return []
    return [f"BYHOUR={int(match[1])}", f"BYMINUTE={int(match[2])}", f"BYSECOND={int(match[3] or 0)}"]


def _target(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = form.get("then", "message")
    if kind == "webhook":
        return {"webhook": _webhook(form, read, stored.get("webhook") or {})}
    if kind == "command":
        lines = (form.get("arguments") or "").replace("\r\n", "\n").split("\n")
        arguments = [line for line in lines if line]
        command = {"name": (form.get("command") or "").strip()}
        return {"command": command | ({"arguments": arguments} if arguments else {})}
    return None


def _webhook(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any]:
    hook = ParsedForm({name: value for name, value in stored.items() if name == "query"})
    _put(hook, "url", form.get("url"))
    if form.get("method") and (form["method"] != "POST" or "method" in stored):
        hook.fields["method"] = form["method"]
    headers = _headers(form.get("headers") or "", read)
    if headers:
        hook.fields["headers"] = headers
    _put(hook, "secret", form.get("secret"))
    _put(hook, "timeout", _number(form, read, "hook_timeout", about="target.webhook.timeout"))
    body = form.get("body") or ""
    if body.strip():
        try:
            hook.fields["body"] = json.loads(body)
        except (ValueError, RecursionError):
            hook.fields["body"] = body  # a string is sent as it is
    return hook.fields


def _headers(text: str, read: ParsedForm) -> dict[str, str]:
    headers = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            read.problems["target.webhook.headers"] = f"a header is written Name: value, not {line[:40]!r}"
        elif line.strip():
            headers[name.strip()] = value.strip()
    return headers


def _policy(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy: what is shown as it was filled in, what is not as it was stored."""
    policy = dict(stored)
    shown = (("max_attempts", "max_attempts"), ("delay", "delay"), ("timeout", "run_timeout"))
    for name, given in shown:
        value = _number(form, read, given, about=f"run.{name}")
        if value is not _LEFT_OUT:
            policy[name] = value
    for name in ("backoff", "overlap"):
        if form.get(name) in ("exponential", "linear", "fixed", "allow", "skip", "wait"):
            policy[name] = form[name]
    return policy
