"""The maintenance thread: heartbeat, backlog gauges, pruning, partitions, and a summary every minute."""

import math
import os
import socket
import threading
import time

from scheduler import __version__
from scheduler.domain.errors import NotMigrated, Unavailable
from scheduler.ops import metrics, throttled_warnings
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.ops.recent_activity import RecentActivity, percentile
from scheduler.ops.replica import REPLICA_ID
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.maintenance_queries import MaintenanceSession, Replica
from scheduler.processes.roles import ROLES, ProcessRole
from scheduler.processes.runtime import Stop
from scheduler.settings import Settings

log = get_logger(__name__)
_not_migrated = ThrottledWarning(log, "the database is not migrated")

TICK_SECONDS = 5.0
RETRY_SECONDS = 2.0  # while the database is unavailable
MINUTE_SECONDS = 60.0
MEASURE_SECONDS = 30.0  # maximum time between two counts of the backlog
PRUNE_BATCH = 1000
PARTITION_SECONDS = 3600.0
PRUNE_SECONDS = 1.5  # maximum per tick, so that the heartbeat is on time


_GAUGES = (
    metrics.backlog_jobs, metrics.oldest_due_age, metrics.pending_jobs, metrics.runs_open, metrics.runs_overdue,
    metrics.runs_dead, metrics.delayed_messages, metrics.calendars_expiring, metrics.work_unoffered,
    metrics.work_longest_wait,
)


class Maintenance:
    """Runs as long as its process. A failure does not affect the work, and the next tick retries."""

    def __init__(
        self, role: ProcessRole, settings: Settings, stop: Stop, health: HealthPart | None, metrics_port: int
    ) -> None:
        """Report to `health` whether the database is available, unless the work itself does."""
        self._role = role
        self._settings = settings
        self._stop = stop
        self._health = health
        host, pid = socket.gethostname(), os.getpid()
        self._replica = Replica(REPLICA_ID, role.name, host, pid, __version__, metrics_port)
        self._session: MaintenanceSession | None = None
        self._recent = RecentActivity(size=3)
        self._minute = RecentActivity(size=1)
        self._summary_due = time.monotonic() + MINUTE_SECONDS
        self._measure_due = self._prune_due = self._partitions_due = time.monotonic()
        self._partitions_pause = MINUTE_SECONDS
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> "Maintenance":
        """Start the thread."""
        self._thread.start()
        return self

    def join(self, seconds: float = 2.0) -> None:
        """Wait after a stop until the replica is deregistered."""
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            pause = TICK_SECONDS if self._tick() else RETRY_SECONDS
        self._leave()

    def _tick(self) -> bool:
        try:
            return self.run_once()
        except Exception:
            log.exception("maintenance failed", do="report this; reminders are not affected")
            self._close()
            return False

    def run_once(self) -> bool:
        """Run one tick; return whether the database is available."""
        throttled_warnings.flush_all()
        if not self._role.database:
            return True
        if time.monotonic() >= self._summary_due:
            self._summary_due = time.monotonic() + MINUTE_SECONDS
            self.summarise()
        self._recent.advance()
        try:
            if self._session is None:
                self._session = MaintenanceSession(self._settings.database_url, self._replica.role)
            self._beat(self._session)
        except Unavailable as error:
            self._lose(error)
            if self._health is not None:  # otherwise the work itself logs a warning
                self._health.missing("postgres", str(error))
                if isinstance(error, NotMigrated):
                    _not_migrated.warning(problem=str(error), do="run `scheduler migrate`")
            return False
        try:
            self._measure(self._session)
            self._prune(self._session)
            self._keep_partitions(self._session)
        except Unavailable as error:
            # The database may be too slow to count or prune and still fast enough to work.
            self._lose(error)
            return False
        return True

    def _beat(self, session: MaintenanceSession) -> None:
        live = session.beat(self._replica, self._recent.since())
        for role in ROLES:
            metrics.replicas.labels(role).set(live.get(role, 0))
        if self._health is not None:
            self._health.found("postgres")

    def _measure(self, session: MaintenanceSession) -> None:
        began = time.monotonic()
        if began < self._measure_due:
            return
        backlog, work = session.measure(), session.measure_work()
        # Counting a large backlog takes a while: spend at most a fiftieth of the time on it.
        now = time.monotonic()
        self._measure_due = now + min(50 * (now - began), MEASURE_SECONDS)
        metrics.backlog_jobs.set(backlog.due)
        for name, count in backlog.by_class.items():
            metrics.backlog_by_class.labels(name).set(count)
        metrics.oldest_due_age.set(backlog.oldest_age)
        metrics.pending_jobs.set(backlog.pending)
        metrics.runs_open.set(backlog.runs_open)
        metrics.runs_overdue.set(backlog.runs_overdue)
        metrics.runs_dead.set(backlog.runs_dead)
        metrics.delayed_messages.set(backlog.delayed)
        metrics.calendars_expiring.set(backlog.calendars_expiring)
        metrics.work_unoffered.set(work.unoffered)
        metrics.work_longest_wait.set(work.longest)

    def _prune(self, session: MaintenanceSession) -> None:
        """Prune until nothing old is left or the tick's share is used up, resting as long as working."""
        began = time.monotonic()
        if began < self._prune_due:
            return
        while True:
            started = time.monotonic()
            deleted = session.prune(self._settings.retention_days, PRUNE_BATCH)
            metrics.pruned.inc(deleted)
            deleted = max(deleted, session.prune_audit(self._settings.retention_days, PRUNE_BATCH),
                          session.prune_repeated(PRUNE_BATCH))
            now = time.monotonic()
            if deleted < PRUNE_BATCH:
                self._prune_due = now + MINUTE_SECONDS
                return
            if now - began > PRUNE_SECONDS or self._stop.wait(now - started):
                return

    def _keep_partitions(self, session: MaintenanceSession) -> None:
        """Add and drop partitions of the history, if this process leads; back off while others use the history.

        There are partitions for two weeks ahead: nothing here is urgent.
        """
        if time.monotonic() < self._partitions_due:
            return
        change = session.keep_partitions(self._settings.retention_days)
        metrics.partitions_dropped.inc(change.dropped)
        if change.complete:
            pause, self._partitions_pause = PARTITION_SECONDS if change.leads else MINUTE_SECONDS, MINUTE_SECONDS
        elif change.added or change.dropped:
            pause = self._partitions_pause = MINUTE_SECONDS
        else:
            pause = self._partitions_pause
            self._partitions_pause = min(2 * pause, PARTITION_SECONDS)
            log.info("history partitions postponed: run_history is locked", again_in=pause,
                     do="if it persists, find the open transaction in pg_stat_activity")
        self._partitions_due = time.monotonic() + pause

    def _lose(self, error: Unavailable) -> None:
        log.debug("no heartbeat: database unavailable", problem=str(error))
        # Unknown is not zero.
        for gauge in _GAUGES:
            gauge.set(math.nan)
        for name in metrics.CLASSES:
            metrics.backlog_by_class.labels(name).set(math.nan)
        for role in ROLES:
            metrics.replicas.labels(role).set(math.nan)
        self._close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _leave(self) -> None:
        try:
            if self._session is not None:
                self._session.leave(self._replica)
        except Unavailable:
            pass  # other replicas notice that its heartbeat is missing
        finally:
            self._close()

    def summarise(self) -> None:
        """Log the activity since the last summary."""
        done = self._minute.since()
        self._minute.advance()
        lag = done.pop("lag")
        late = {
            f"lag_p{round(share * 100)}_ms": round(seconds * 1000, 1)
            for share in (0.5, 0.99)
            if (seconds := percentile(share, lag)) is not None
        }
        backlog = metrics.backlog_jobs.collect()
        waiting = next(iter(backlog)).samples[0].value
        log.info("summary", **done, **late, backlog=None if math.isnan(waiting) else int(waiting))
