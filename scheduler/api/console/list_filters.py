"""Filters of lists: parse them from a query, build links with them, and describe them in English."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from scheduler.api.console.formatting import join_words, moment_like
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import parse_instant
from scheduler.domain.jobs.job import VISIBLE_STATUSES
from scheduler.domain.recurrence import zone, zone_names
from scheduler.postgres.runs.lists import RunFilter

JOB_FILTERS = ("q", "status", "job_type", "tenant", "priority")
RUN_FILTERS = ("status", "job_type", "tenant", "since", "until", "job_id", "worker", "zone")
_STATUSES = {"jobs": VISIBLE_STATUSES,
             "runs": ("delivered", "running", "waiting", "succeeded", "dead", "cancelled", "emitted")}
_PRIORITIES = ("high", "normal", "low")
_MAX_LENGTH = 200


def parse_filters(query: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the filters that are set; `filter_problems` checks their values."""
    return {
        name: query[name].strip()[:_MAX_LENGTH].replace("\x00", "")
        for name in names if query.get(name, "").strip()
    }


def filter_problems(filters: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return the problems of filters with a fixed set of values: an unknown one must not list everything."""
    return {name: f"is one of {', '.join(allowed)}, not {filters[name][:40]!r}"
            for name, allowed in (("status", _STATUSES[kind]), ("priority", _PRIORITIES))
            if name in filters and filters[name] not in allowed}


def check_filters(filters: Mapping[str, str], kind: str) -> None:
    """Raise Unprocessable if a filter has an unknown value."""
    problems = filter_problems(filters, kind)
    if problems:
        raise Unprocessable([Problem(name, text) for name, text in problems.items()])


def address(path: str, *parts: Mapping[str, str | None]) -> str:
    """Return an address with these parameters; empty ones are left out."""
    values = {name: value for part in parts for name, value in part.items() if value}
    return f"{path}?{urlencode(values)}" if values else path


def describe_filters(filters: Mapping[str, str], *, of: str = "") -> str:
    """Describe filters: dead, of type report.weekly, due from 2026-11-01."""
    parts = [filters["status"]] if "status" in filters else []
    parts += [f"of type {filters['job_type']}"] if "job_type" in filters else []
    parts += [f"of tenant {filters['tenant']}"] if "tenant" in filters else []
    parts += [f"of {filters['priority']} priority"] if "priority" in filters else []
    parts += [f"beginning with {filters['q']}"] if "q" in filters else []
    parts += [f"of the job {filters['job_id']}"] if "job_id" in filters else []
    parts += [f"of the worker {filters['worker']}"] if "worker" in filters else []
    parts += [f"due from {filters['since']}"] if "since" in filters else []
    parts += [f"due before {filters['until']}"] if "until" in filters else []
    parts += [f"in {filters['zone']}"] if "zone" in filters and {"since", "until"} & filters.keys() else []
    return f"{of} {join_words(parts)}".strip()


def live_address(topic: str, filters: Mapping[str, str], *, newest: bool) -> str:
    """Return the address of a list's stream; the page adds the ids of its rows."""
    return address("/live", {"topic": topic, "newest": "1" if newest else None}, filters)


def run_filter(filters: Mapping[str, str]) -> tuple[RunFilter, dict[str, str]]:
    """Return the filter for the service, and its problems by field."""
    problems = filter_problems(filters, "runs")
    times: dict[str, datetime] = {}
    zone_name = filters.get("zone", "UTC")
    if zone_name not in zone_names():
        problems["zone"] = f"is not a time zone: {zone_name[:40]!r}"
        zone_name = "UTC"
    for name in ("since", "until"):
        if name in filters:
            try:
                times[name] = _moment(filters[name], zone_name)
            except ValueError as error:
                problems[name] = str(error)
    job_id = filters.get("job_id")
    if job_id is not None:
        try:
            job_id = str(UUID(job_id))
        except ValueError:
            problems["job_id"] = "is not the id of a job"
            job_id = None
    parsed = RunFilter(
        status=filters.get("status"), job_type=filters.get("job_type"), tenant=filters.get("tenant"),
        job_id=job_id, worker=filters.get("worker"), since=times.get("since"), until=times.get("until"),
    )
    return parsed, problems


def _moment(text: str, zone_name: str) -> datetime:
    """Return an instant; without an offset it is local time in the zone."""
    if moment_like(text):
        return datetime.fromisoformat(text).replace(tzinfo=zone(zone_name)).astimezone(UTC)
    return parse_instant(text if text.endswith("Z") or "+" in text else f"{text}Z")
