"""Statistics for one tenant or all, with limited counts for tables of any size."""

from dataclasses import dataclass
from typing import Any

from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.maintenance_queries import SeenReplica
from scheduler.postgres.worker_rows import STALE_SECONDS, SeenWorker, list_handlers, list_workers
from scheduler.resources import query

COUNTED = 100_000  # beyond this, numbers are estimates
_SOME = 5_000  # sample size of averages
_FEW = 500  # sample size if each row must be looked up or parsed


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts by status, and averages of the newest runs."""

    jobs: dict[str, int]
    runs: dict[str, int]
    succeeded: int  # in the last day
    ended: int
    mean_duration_ms: float | None
    lag_ms: tuple[float, float] | None  # p50 and p99
    backlog: int
    oldest_due_seconds: float


def stats(connection: Connection, tenant: str | None) -> Stats:
    """Return the statistics of a tenant, or of all."""
    jobs = {status: int(count) for status, count in _ask(connection, "jobs", tenant, COUNTED)}
    runs: dict[str, int] = {}
    for name in ("open_runs", "finished_runs"):
        for status, count in _ask(connection, name, tenant, COUNTED):
            runs[status] = runs.get(status, 0) + int(count)
    [(succeeded, ended, mean)] = _ask(connection, "recent_runs", tenant, _SOME)
    [(lag,)] = _ask(connection, "recent_lag", tenant, _SOME)
    [(backlog, oldest)] = _ask(connection, "backlog", tenant, COUNTED)
    lags = (lag[0], lag[1]) if lag and lag[0] is not None else None
    return Stats(jobs, runs, succeeded, ended, mean, lags, backlog, oldest)


def list_processes(connection: Connection) -> tuple[list[SeenReplica], list[SeenWorker]]:
    """List recent replicas and workers, including stale ones."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("replicas/list"))
        replicas = [SeenReplica(*row) for row in cursor.fetchall()]
        return replicas, list_workers(cursor)


def list_job_types(
    connection: Connection, tenant: str | None
) -> tuple[dict[str, int], list[list[dict[str, Any]]]]:
    """Count live jobs by type, and list the handler catalogues of live workers."""
    jobs = {job_type: int(count) for job_type, count in _ask(connection, "job_types", tenant, COUNTED)}
    with translated(), connection.cursor() as cursor:
        return jobs, list_handlers(cursor)


def find_handler(connection: Connection, job_type: str) -> dict[str, Any] | None:
    """Return a live worker's offer for a job type; None if no handler serves it."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("workers/find_handler"), {"stale_after": STALE_SECONDS, "job_type": job_type})
        row = cursor.fetchone()
        return None if row is None else row[0]


def oldest_due_seconds(connection: Connection) -> float:
    """Return the age of the oldest due job that is not emitted; 0 if there is none."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("stats/oldest_due"))
        [(seconds,)] = cursor.fetchall()
        return max(0.0, float(seconds))


def _ask(connection: Connection, name: str, tenant: str | None, most: int) -> list[tuple[Any, ...]]:
    with translated(), connection.cursor() as cursor:
        cursor.execute(query(f"stats/{name}"), {"tenant": tenant, "most": most, "few": _FEW})
        return cursor.fetchall()
