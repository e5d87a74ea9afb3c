"""The part of a producer that plans jobs again after a change of the zone data."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime

from scheduler.domain.errors import Unavailable
from scheduler.emitting.replanning import BATCH, Change, replan_batch
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.calendar_changes import find_calendar_changes
from scheduler.postgres.claims import PLANNER
from scheduler.postgres.connection import Connection, Cursor, connect, database_time, transaction
from scheduler.postgres.zone_changes import find_zone_changes
from scheduler.postgres.zone_files import RecordedZones
from scheduler.processes.runtime import Stop
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.publisher import Publisher
from scheduler.settings import Settings

log = get_logger(__name__)
_failures = ThrottledWarning(log, "jobs are not planned again; retrying")

INTERVAL_SECONDS = 20.0  # between two searches for changes
TURN_SECONDS = 1.0
LISTED = 10_000  # jobs at a time
# It rests for this share of the processor time of each batch, so that it does not delay emission.
REST = 1.0

Find = Callable[[Cursor, datetime], Sequence[Change]]


class Replanner:
    """Looks for changes since jobs were planned, and plans these jobs again in small batches."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._url = settings.database_url
        self._stop = stop
        self._health = health
        self._recorded = RecordedZones()
        # Each finds the changes of one kind.
        self._finders: tuple[Find, ...] = (
            lambda cursor, now: find_zone_changes(cursor, self._recorded, now),
            find_calendar_changes,
        )

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process stops."""
        publisher = Publisher(link)
        while not self._stop:
            self._health.turn()
            try:
                with closing(connect(self._url, "producer replanner", **PLANNER)) as connection:
                    self._health.found("postgres")  # the emitting loop reports its loss
                    while not self._stop:
                        self._replan(connection, publisher, link)
                        self._rest(INTERVAL_SECONDS, link)
            except RabbitUnavailable:
                raise
            except Unavailable as error:
                _failures.warning(problem=str(error), do="check that Postgres and RabbitMQ are running")
                self._rest(TURN_SECONDS, link)

    def _replan(self, connection: Connection, publisher: Publisher, link: Link) -> None:
        """Plan all jobs again that were planned before a change, except due and locked ones."""
        with transaction(connection) as cursor:
            now = database_time(cursor)
            changes = [change for find in self._finders for change in find(cursor, now)]
        for change in changes:
            planned, began = 0, time.monotonic()
            while ids := self._list_jobs(connection, change):
                done = self._replan_jobs(connection, publisher, link, change, ids)
                planned += done
                if not done or self._stop:
                    break
            if planned:
                cause = change.cause
                log.info("jobs planned again", reason=cause.reason, name=cause.name, version=cause.version,
                         jobs=planned, seconds=round(time.monotonic() - began, 1))

    def _list_jobs(self, connection: Connection, change: Change) -> list[str]:
        with transaction(connection) as cursor:
            return change.list_jobs(cursor, LISTED)

    def _replan_jobs(
        self, connection: Connection, publisher: Publisher, link: Link, change: Change, ids: Sequence[str]
    ) -> int:
        planned = 0
        for first in range(0, len(ids), BATCH):
            self._wait_while_blocked(link)
            if self._stop:
                break
            began = time.thread_time()
            planned += replan_batch(connection, publisher, change, ids[first : first + BATCH])
            self._health.turn()
            self._stop.wait(REST * (time.thread_time() - began))
        return planned

    def _wait_while_blocked(self, link: Link) -> None:
        while not self._stop and link.blocked:
            self._rest(TURN_SECONDS, link)
        if link.closed is not None:
            raise RabbitUnavailable(link.closed)

    def _rest(self, seconds: float, link: Link) -> None:
        """Wait; raise RabbitUnavailable if the connection is lost."""
        until = time.monotonic() + seconds
        while not self._stop and time.monotonic() < until:
            self._health.turn()
            if link.closed is not None:
                raise RabbitUnavailable(link.closed)
            self._stop.wait(min(TURN_SECONDS, seconds))
