"""Describe a job's calendar, window and jitter in English."""

from collections.abc import Mapping
from typing import Any

from scheduler.api.console.date_description import weekdays
from scheduler.api.console.formatting import span
from scheduler.domain.recurrence.window import WEEKDAYS

_CLOSED = {
    "skip": "are skipped", "next": "move to the next open day", "previous": "move to the open day before",
    "nearest": "move to the nearest open day", "next_in_month": "move to an open day of the same month",
}


def describe_adjustments(job: Mapping[str, Any]) -> str:
    """Describe what adjusts a schedule: Closed days of de move to the next open day; only 09:00 to 17:00."""
    parts = []
    if job.get("calendar"):
        parts.append(f"occurrences on closed days of {job['calendar']} {_CLOSED[job.get('on_closed') or 'skip']}")
    if window := job.get("window"):
        days = window.get("days")
        on = f", {weekdays([WEEKDAYS.index(day) for day in days])}" if days else ""
        parts.append(f"only between {window.get('from')} and {window.get('to')}{on}")
    if job.get("jitter"):
        parts.append(f"spread by up to {span(float(job['jitter']))}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]
