"""What the console asks of the database beside what the API's own lists tell."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from scheduler.domain.runs.run import Run
from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.maintenance_queries import BACKLOG_COUNTED, PENDING_COUNTED, Backlog
from scheduler.postgres.runs.columns import BRIEF, SELECTED, SELECTED_OF_HISTORY, read
from scheduler.resources import query

_MOST_NEXT = 200  # due next, before those of other tenants are left out
_MOST_WORKERS = 200
_MOST_FAILED = 5_000
_MOST_OUTCOMES = 20_000
_PULSE = query("console/snapshot", measure=query("maintenance/measure"))
MOST_OF_JOB = 50
MOST_NEW = 50
_WATCHED_RUNS = query(
    "console/watched_runs", selected=SELECTED, selected_of_history=SELECTED_OF_HISTORY, brief=BRIEF
)


@dataclass(frozen=True, slots=True)
class SystemSnapshot:
    """How the whole sidecar stands at one moment; `failing` is None where it was not asked for."""

    at: datetime
    backlog: Backlog
    replicas: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    upcoming: list[dict[str, Any]]
    failing: list[dict[str, Any]] | None


def take_snapshot(connection: Connection, *, with_failures: bool) -> SystemSnapshot:
    """Ask for everything that live pages show, in one statement."""
    values = {
        "most": BACKLOG_COUNTED, "few": PENDING_COUNTED, "most_next": _MOST_NEXT, "most_workers": _MOST_WORKERS,
        "most_failed": _MOST_FAILED, "with_failures": with_failures,
    }
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PULSE, values)
        [row] = cursor.fetchall()
        found = dict(zip([column.name for column in cursor.description or ()], row, strict=True))
    measured = {name: found[name] for name in Backlog._fields}
    backlog = Backlog(**measured | {"oldest_age": max(0.0, found["oldest_age"] or 0.0)})
    return SystemSnapshot(found["at"], backlog, found["replicas"], found["workers"], found["upcoming"],
                          found["failing"])


def job_outcomes(
    connection: Connection, job_id: str, timezone: str, since: datetime
) -> dict[date, dict[str, int]]:
    """Count a job's runs by day and status, the newest ones where there are very many."""
    values = {"job_id": job_id, "timezone": timezone, "since": since, "most": _MOST_OUTCOMES}
    days: dict[date, dict[str, int]] = {}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("console/job_outcomes"), values)
        for day, status, number in cursor:
            days.setdefault(day, {})[status] = number
    return days


@dataclass(frozen=True, slots=True)
class WatchedRuns:
    """The runs that live pages show; all but `whole` without event, output and attempts."""

    whole: dict[str, Run]
    rows: dict[str, Run]
    of_job: dict[str, list[Run]]
    newest: list[Run]


def watched_runs(
    connection: Connection, *, whole: Iterable[str] = (), rows: Iterable[str] = (), jobs: Iterable[str] = (),
    newest: bool = False,
) -> WatchedRuns:
    """Return the runs of these events and the newest of these jobs and of all, in one statement."""
    values = {"whole": list(whole), "rows": list(rows), "jobs": list(jobs), "most_of_job": MOST_OF_JOB,
              "newest": MOST_NEW if newest else 0}
    found: dict[str, dict[str, Run]] = {"whole": {}, "row": {}, "of job": {}, "new": {}}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_WATCHED_RUNS, values)
        for row in cursor:
            run = read(row)
            if run.occurrence is not None:
                found[row[-2]].setdefault(run.event_id, run)
    of_job = _by_job(found["of job"].values())
    return WatchedRuns(found["whole"], found["row"], of_job, list(found["new"].values()))


def _by_job(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return each job's newest runs, those due last first."""
    jobs: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.occurrence.due_at, run.event_id), reverse=True):  # type: ignore[union-attr]
        jobs.setdefault(run.occurrence.job_id, []).append(run)  # type: ignore[union-attr]
    return {job_id: found[:MOST_OF_JOB] for job_id, found in jobs.items()}
