"""Zone files of the versions that jobs were planned with."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence import Clock, tzdata_version, zone_data
from scheduler.domain.recurrence.zone_data import ZoneData
from scheduler.domain.recurrence.zones import clock_in
from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

Query = Callable[[str, dict[str, Any]], Sequence[tuple[Any, ...]]]  # runs a statement and returns its rows


def record_zones(cursor: Cursor, jobs: Iterable[Job]) -> None:
    """Record the files of the zones that this process planned these jobs with, if they are missing."""
    session: TimedConnection = cursor.connection  # type: ignore[assignment]  # connect() returns no other type
    zones = {job.definition.spec.timezone for job in jobs
             if job.zone_version is not None and job.definition is not None} - session.recorded_zones
    if not zones:
        return
    data = zone_data.current()
    names = sorted(zones & data.names)
    cursor.execute(query("zones/list_recorded"), {"version": data.version, "names": names})
    recorded = {name for name, in cursor.fetchall()}
    session.recorded_zones |= recorded  # these are committed
    if missing := [name for name in names if name not in recorded]:
        values = {"version": data.version, "names": missing, "files": [data.file(name) for name in missing]}
        cursor.execute(query("zones/record"), values)


class RecordedZones:
    """The recorded zone files, read once."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], ZoneData] = {}

    def data(self, version: str, name: str, run: Query) -> ZoneData | None:
        """Return the zone data of another version with one zone; None if it is not recorded."""
        if (version, name) not in self._files:
            rows = run(query("zones/find_file"), {"version": version, "name": name})
            if not rows:
                return None
            self._files[version, name] = ZoneData(version, "database", {name: bytes(rows[0][0])})
        return self._files[version, name]

    def read(self, version: str, name: str, cursor: Cursor) -> ZoneData | None:
        """Return the same with a cursor."""
        def run(statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
            cursor.execute(statement, values)
            return cursor.fetchall()

        return self.data(version, name, run)

    def loaded(self, version: str, name: str) -> ZoneData | None:
        """Return the zone data if it was read before."""
        return self._files.get((version, name))


class PlannedZones:
    """The clocks of other zone data that planned some jobs."""

    def __init__(self) -> None:
        self._recorded = RecordedZones()

    def load(self, run: Query, jobs: Iterable[Job]) -> None:
        """Read the zone data that planned jobs."""
        for job in jobs:
            version = job.zone_version
            if version is not None and version != tzdata_version() and job.definition is not None:
                self._recorded.data(version, job.definition.spec.timezone, run)

    def clock(self, job: Job) -> Clock | None:
        """Return the clock that planned a job; None for that of this process, or if it is not recorded."""
        if job.zone_version is None or job.zone_version == tzdata_version() or job.definition is None:
            return None
        name = job.definition.spec.timezone
        data = self._recorded.loaded(job.zone_version, name)
        return None if data is None else clock_in(data, name)
