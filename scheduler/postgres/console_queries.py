"""Queries for the console's live pages."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from scheduler.domain.runs.run import Run
from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.maintenance_queries import BACKLOG_COUNTED, PENDING_COUNTED, Backlog
from scheduler.postgres.runs.columns import BRIEF, SELECTED, SELECTED_OF_HISTORY, read
from scheduler.postgres.runs.lists import add_trigger_callers
from scheduler.resources import query

_MAX_NEXT = 200  # jobs due next, before filtering by tenant
_MAX_WORKERS = 200
_MAX_FAILED = 5_000
_MAX_OUTCOMES = 20_000
_PULSE = query("console/snapshot", measure=query("maintenance/measure"))
MAX_TENANTS = 200
MAX_OF_TENANT = 10_000
_MAX_DUE = 10_000  # of all tenants
MAX_OF_JOB = 50
MAX_NEW = 50
_WATCHED_RUNS = query(
    "console/watched_runs", selected=SELECTED, selected_of_history=SELECTED_OF_HISTORY, brief=BRIEF
)


@dataclass(frozen=True, slots=True)
class SystemSnapshot:
    """State of the whole sidecar at one time; `failing` and `causes` are None if they were not requested."""

    at: datetime
    backlog: Backlog
    replicas: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    upcoming: list[dict[str, Any]]
    failing: list[dict[str, Any]] | None
    causes: dict[str, list[dict[str, Any]]] | None = None  # errors, refused and due, each by tenant


def take_snapshot(connection: Connection, *, with_failures: bool) -> SystemSnapshot:
    """Return the data of the live pages in one statement."""
    values = {
        "most": BACKLOG_COUNTED, "few": PENDING_COUNTED, "most_next": _MAX_NEXT, "most_workers": _MAX_WORKERS,
        "most_failed": _MAX_FAILED, "with_failures": with_failures,
    }
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PULSE, values)
        [row] = cursor.fetchall()
        columns = dict(zip([column.name for column in cursor.description or ()], row, strict=True))
    measured = {name: columns[name] for name in Backlog._fields}
    backlog = Backlog(**measured | {"oldest_age": max(0.0, measured["oldest_age"] or 0.0)})
    return SystemSnapshot(columns["at"], backlog, columns["replicas"], columns["workers"], columns["upcoming"],
                          columns["failing"], columns["causes"])


@dataclass(frozen=True, slots=True)
class TenantRow:
    """The jobs of one tenant; each number is counted up to a limit."""

    tenant: str
    pending: int
    paused: int
    soon: int  # due within an hour
    late: int


def list_tenants(connection: Connection) -> list[TenantRow]:
    """Return the tenants with jobs, those with late jobs first."""
    values = {"most_tenants": MAX_TENANTS, "most": MAX_OF_TENANT, "most_due": _MAX_DUE}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("console/tenants", indexed=query("jobs/indexed_filter")), values)
        return [TenantRow(*row) for row in cursor]


def job_outcomes(
    connection: Connection, job_id: str, timezone: str, since: datetime
) -> dict[date, dict[str, int]]:
    """Count a job's newest runs by day and status."""
    values = {"job_id": job_id, "timezone": timezone, "since": since, "most": _MAX_OUTCOMES}
    days: dict[date, dict[str, int]] = {}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("console/job_outcomes"), values)
        for day, status, number in cursor:
            days.setdefault(day, {})[status] = number
    return days


@dataclass(frozen=True, slots=True)
class WatchedRuns:
    """The runs on live pages; all but `whole` without event, output and attempts."""

    whole: dict[str, Run]
    rows: dict[str, Run]
    of_job: dict[str, list[Run]]
    newest: list[Run]


def watched_runs(
    connection: Connection, *, whole: Iterable[str] = (), rows: Iterable[str] = (), jobs: Iterable[str] = (),
    newest: bool = False,
) -> WatchedRuns:
    """Return the runs of these events, the newest runs of these jobs and the newest runs, in one statement."""
    values = {"whole": list(whole), "rows": list(rows), "jobs": list(jobs), "most_of_job": MAX_OF_JOB,
              "newest": MAX_NEW if newest else 0}
    runs: dict[str, dict[str, Run]] = {"whole": {}, "row": {}, "of job": {}, "new": {}}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_WATCHED_RUNS, values)
        for row in cursor:
            run = read(row)
            if run.occurrence is not None:
                runs[row[-2]].setdefault(run.event_id, run)
        add_trigger_callers(cursor, [run for job_runs in runs.values() for run in job_runs.values()])
    of_job = _by_job(runs["of job"].values())
    return WatchedRuns(runs["whole"], runs["row"], of_job, list(runs["new"].values()))


def _by_job(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return each job's newest runs, latest due first."""
    jobs: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.occurrence.due_at, run.event_id), reverse=True):  # type: ignore[union-attr]
        jobs.setdefault(run.occurrence.job_id, []).append(run)  # type: ignore[union-attr]
    return {job_id: job_runs[:MAX_OF_JOB] for job_id, job_runs in jobs.items()}
