"""The form's calendar, window and jitter: parse them, and fill them in."""

from collections.abc import Mapping
from typing import Any

from scheduler.api.console.form_fields import LEFT_OUT, ParsedForm, number_text, put, read_number
from scheduler.domain.recurrence.window import WEEKDAYS

WINDOW_DAYS = tuple(f"window_day_{day}" for day in range(len(WEEKDAYS)))
INPUTS = ("calendar", "on_closed", "windowed", "window_from", "window_to", *WINDOW_DAYS, "jitter")


def read_adjustments(form: Mapping[str, str], read: ParsedForm) -> None:
    """Add calendar, on_closed, window and jitter to a request's fields."""
    put(read, "calendar", form.get("calendar"))
    if "calendar" in read.fields:
        put(read, "on_closed", form.get("on_closed"))
    if form.get("windowed"):
        read.fields["window"] = _window(form)
    jitter = read_number(form, read, "jitter")
    if jitter not in (LEFT_OUT, 0):
        read.fields["jitter"] = jitter


def _window(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the hours; all seven weekdays are the default."""
    hours = {"from": (form.get("window_from") or "").strip(), "to": (form.get("window_to") or "").strip()}
    days = [name for name, box in zip(WEEKDAYS, WINDOW_DAYS, strict=True) if form.get(box)]
    return hours if len(days) == len(WEEKDAYS) else hours | {"days": days}


def adjustment_values(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs of a job's calendar, window and jitter."""
    values = {name: str(job[name]) for name in ("calendar", "on_closed") if job.get(name) is not None}
    if job.get("jitter") is not None:
        values["jitter"] = number_text(job["jitter"])
    window = job.get("window")
    if window is None:
        return values
    days = window.get("days") or WEEKDAYS
    boxes = {box: "on" for name, box in zip(WEEKDAYS, WINDOW_DAYS, strict=True) if name in days}
    return values | {"windowed": "on", "window_from": window["from"], "window_to": window["to"]} | boxes
