"""Filters of a list: from the address to the service and back into links, and in words."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID

from scheduler.api.console.formatting import listed
from scheduler.domain.instants import parse_instant
from scheduler.domain.jobs.job import VISIBLE_STATUSES
from scheduler.postgres.runs.lists import RunFilter

JOB_FILTERS = ("q", "status", "job_type", "tenant", "priority")
RUN_FILTERS = ("status", "job_type", "tenant", "since", "until", "job_id", "worker")
_STATUSES = {"jobs": VISIBLE_STATUSES,
             "runs": ("delivered", "running", "waiting", "succeeded", "dead", "cancelled", "emitted")}
_PRIORITIES = ("high", "normal", "low")
_LONGEST = 200


def filters(given: Mapping[str, str], names: tuple[str, ...], kind: str) -> dict[str, str]:
    """Return the filters that are set and can be meant; what no list knows is left out."""
    found = {
        name: given[name].strip()[:_LONGEST].replace("\x00", "") for name in names if given.get(name, "").strip()
    }
    if found.get("status") not in (None, *_STATUSES[kind]):
        del found["status"]
    if found.get("priority") not in (None, *_PRIORITIES):
        del found["priority"]
    return found


def address(path: str, *parts: Mapping[str, str | None]) -> str:
    """Return an address with these parameters; empty ones are left out."""
    values = {name: value for part in parts for name, value in part.items() if value}
    return f"{path}?{urlencode(values)}" if values else path


def in_words(found: Mapping[str, str], *, of: str = "") -> str:
    """Say what is filtered: dead, of type report.weekly, due from 2026-11-01."""
    said = [found["status"]] if "status" in found else []
    said += [f"of type {found['job_type']}"] if "job_type" in found else []
    said += [f"of tenant {found['tenant']}"] if "tenant" in found else []
    said += [f"of {found['priority']} priority"] if "priority" in found else []
    said += [f"beginning with {found['q']}"] if "q" in found else []
    said += [f"of the job {found['job_id']}"] if "job_id" in found else []
    said += [f"of the worker {found['worker']}"] if "worker" in found else []
    said += [f"due from {found['since']}"] if "since" in found else []
    said += [f"due before {found['until']}"] if "until" in found else []
    return f"{of} {listed(said)}".strip()


def live_address(topic: str, found: Mapping[str, str], *, newest: bool) -> str:
    """Return where a list's stream is; the page adds which rows it shows."""
    return address("/live", {"topic": topic, "newest": "1" if newest else None}, found)


def wanted_runs(found: dict[str, str]) -> tuple[RunFilter, dict[str, str]]:
    """Return the filter for the service, and what could not be read of it, by field."""
    problems: dict[str, str] = {}
    times: dict[str, datetime] = {}
    for name in ("since", "until"):
        if name in found:
            try:
                text = found[name]
                times[name] = parse_instant(text if text.endswith("Z") or "+" in text else f"{text}Z")
            except ValueError as error:
                problems[name] = str(error)
    job_id = found.get("job_id")
    if job_id is not None:
        try:
            job_id = str(UUID(job_id))
        except ValueError:
            problems["job_id"] = "is not the id of a job"
            job_id = None
    wanted = RunFilter(status=found.get("status"), job_type=found.get("job_type"), tenant=found.get("tenant"),
                       job_id=job_id, worker=found.get("worker"),
                       since=times.get("since"), until=times.get("until"))
    return wanted, problems
