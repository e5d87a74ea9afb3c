"""Heartbeats, backlog measurement, pruning and partitions."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple
from uuid import UUID

from scheduler.domain.jobs.job import TRIGGERS_REMEMBERED
from scheduler.postgres.claims import PLANNER
from scheduler.postgres.connection import connect, translated
from scheduler.postgres.schema import lock_key
from scheduler.postgres.worker_rows import STALE_SECONDS as WORKER_STALE_SECONDS
from scheduler.postgres.worker_rows import SeenWorker, UnstartedWork, list_workers, measure_work
from scheduler.resources import query

# A replica without a heartbeat for this long is stale; it sends one every five seconds.
STALE_SECONDS = 17.0
# Limits of counting.
BACKLOG_COUNTED = 100_000
PENDING_COUNTED = 1_000
PARTITIONS_AHEAD = 14  # days
_PRUNING = 0x5C4ED02E  # advisory lock for pruning
_PARTITIONS = 0x5C4ED03E  # advisory lock of the session that maintains the partitions
_MEASURE = query("maintenance/measure")
_MAX_PARTITIONS = 20  # in a row, so that the heartbeat stays in time


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of the sidecar."""

    id: UUID
    role: str
    host: str
    pid: int
    version: str
    metrics_port: int


class Backlog(NamedTuple):
    """Due jobs, seconds since the oldest was due, pending jobs; runs; delayed messages; expiring calendars."""

    due: int
    oldest_age: float
    pending: int
    due_high: int = 0
    due_low: int = 0
    runs_open: int = 0
    runs_overdue: int = 0
    runs_dead: int = 0
    delayed: int = 0
    calendars_expiring: int = 0

    @property
    def by_class(self) -> dict[str, int]:
        """Due jobs by priority class; jobs that the broker rejected count as normal."""
        return {"high": self.due_high, "normal": max(0, self.due - self.due_high - self.due_low),
                "low": self.due_low}


class SeenReplica(NamedTuple):
    """A listed replica."""

    role: str
    host: str
    pid: int
    version: str
    metrics_port: int
    up_seconds: float
    silent_seconds: float
    recent: dict[str, Any]
    id: str | None = None

    @property
    def stale(self) -> bool:
        return self.silent_seconds > STALE_SECONDS


class UpcomingJob(NamedTuple):
    """A pending job with the seconds until it is due."""

    id: str
    job_type: str
    schedule: str
    seconds: float
    retries: int


class Partitions(NamedTuple):
    """Partitions of the history that were added and dropped; `complete` if none is left to add or drop."""

    added: int = 0
    dropped: int = 0
    leads: bool = False  # whether this session maintains the partitions
    complete: bool = True


class MaintenanceSession:
    """A separate connection, so that maintenance never delays other work."""

    def __init__(self, url: str, role: str) -> None:
        self._connection = connect(
            url, f"{role} maintenance", statement_timeout="5s", lock_timeout="1s", **PLANNER
        )
        # Saves the round trips of BEGIN and COMMIT.
        self._connection.autocommit = True
        self._leads = False  # whether this session maintains the partitions

    def measure(self) -> Backlog:
        """Return the backlog, counted up to a limit, and an estimate of the pending jobs."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(_MEASURE, {"most": BACKLOG_COUNTED, "few": PENDING_COUNTED})
            [(due, oldest, *others)] = cursor.fetchall()
            return Backlog(due, max(0.0, oldest or 0.0), *others)

    def measure_work(self) -> UnstartedWork:
        """Measure the work that no worker has started."""
        with translated(), self._connection.cursor() as cursor:
            return measure_work(cursor)

    def beat(self, replica: Replica, recent: Mapping[str, Any]) -> dict[str, int]:
        """Store a heartbeat of `replica`; return the number of live replicas by role, including itself."""
        values = asdict(replica) | {
            "id": str(replica.id), "recent": json.dumps(recent), "stale_after": STALE_SECONDS,
            "worker_stale_after": WORKER_STALE_SECONDS,
        }
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("replicas/beat"), values)
            live = {role: count for role, count in cursor.fetchall()}  # noqa: C416 - tuples of any length to mypy
        return live | {replica.role: live.get(replica.role, 0) + 1}

    def replicas(self) -> list[SeenReplica]:
        """List recent replicas, including stale ones."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("replicas/list"))
            return [SeenReplica(*row) for row in cursor.fetchall()]

    def workers(self) -> list[SeenWorker]:
        """List recent workers, including stale ones."""
        with translated(), self._connection.cursor() as cursor:
            return list_workers(cursor)

    def next_due(self, limit: int) -> list[UpcomingJob]:
        """List the jobs due next."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("jobs/list_next_due"), {"limit": limit})
            return [UpcomingJob(*row) for row in cursor.fetchall()]

    def leave(self, replica: Replica) -> None:
        """Delete `replica`, which stops."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("replicas/leave"), {"id": str(replica.id)})

    def prune(self, days: int, limit: int) -> int:
        """Delete up to `limit` jobs that finished more than `days` days ago; return their number."""
        with translated(), self._connection.cursor() as cursor:
            values = {"days": days, "limit": limit, "lock": self._lock(_PRUNING)}
            cursor.execute(query("maintenance/prune_jobs"), values)
            return int(cursor.rowcount)

    def prune_repeated(self, limit: int) -> int:
        """Delete up to `limit` message digests and redelivery counts that have expired; return their number."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("maintenance/prune_repeated"), {"limit": limit, "age": TRIGGERS_REMEMBERED})
            [(deleted,)] = cursor.fetchall()
            return int(deleted)

    def prune_audit(self, days: int, limit: int) -> int:
        """Delete up to `limit` audit entries older than `days` days; return their number."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("maintenance/prune_audit"), {"days": days, "limit": limit})
            [(deleted,)] = cursor.fetchall()
            return int(deleted)

    def keep_partitions(self, retention_days: int) -> Partitions:
        """Add the history's partitions for the next days and drop old ones, each in a short transaction."""
        if not self._try_lead():
            return Partitions()
        added, all_added = self._repeat("maintenance/add_partition", PARTITIONS_AHEAD)
        dropped, all_dropped = self._repeat("maintenance/drop_partition", retention_days)
        return Partitions(added, dropped, leads=True, complete=all_added and all_dropped)

    def _try_lead(self) -> bool:
        if not self._leads:
            with translated(), self._connection.cursor() as cursor:
                cursor.execute(query("maintenance/try_lead"), {"lock": self._lock(_PARTITIONS)})
                [(self._leads,)] = cursor.fetchall()
        return self._leads

    def _repeat(self, name: str, days: int) -> tuple[int, bool]:
        """Run a statement for one partition after another; return their number and whether none is left."""
        for done in range(_MAX_PARTITIONS):
            with translated(), self._connection.cursor() as cursor:
                cursor.execute(query(name), {"days": days})
                [(changed,)] = cursor.fetchall()
            if not changed:  # None: a lock was not available
                return done, changed is not None
        return _MAX_PARTITIONS, False

    def _lock(self, key: int) -> int:
        return lock_key(self._connection.schema, key)

    def close(self) -> None:
        self._connection.close()
