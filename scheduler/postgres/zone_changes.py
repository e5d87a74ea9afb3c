"""Changes of zones between the zone data that planned jobs and that of this process."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from scheduler.domain.jobs.job import Job
from scheduler.domain.jobs.replan import Cause, replan_in_zone
from scheduler.domain.recurrence import zone_names
from scheduler.domain.recurrence.zone_changes import zone_changed
from scheduler.domain.recurrence.zone_data import ZoneData, current
from scheduler.domain.recurrence.zones import clock, clock_in
from scheduler.postgres.connection import Cursor
from scheduler.postgres.effective_calendars import JobCalendars, runner
from scheduler.postgres.jobs.zones import list_outdated_jobs, list_plans
from scheduler.postgres.zone_files import RecordedZones


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A zone that changed since a version of the zone data; jobs of an earlier release have an empty version."""

    zone: str
    since: str
    old: ZoneData | None  # None if it is unknown
    calendars: JobCalendars = field(default_factory=JobCalendars, compare=False, repr=False)

    @property
    def cause(self) -> Cause:
        """The change, for the event."""
        return Cause("zone", self.zone, current().version)

    def list_jobs(self, cursor: Cursor, limit: int) -> list[str]:
        """Return ids of jobs that were planned before the change and are not due."""
        return list_outdated_jobs(cursor, self.zone, self.since, limit)

    def prepare(self, cursor: Cursor, jobs: Sequence[Job]) -> None:
        """Read the calendars of jobs before they are planned."""
        self.calendars.load(runner(cursor), jobs)

    def plan(self, job: Job, now: datetime) -> Job:
        """Return the job planned by the zone data of this process."""
        definition = job.definition
        outdated = (job.zone_version or "") == self.since
        if definition is None or definition.spec.timezone != self.zone or not outdated:
            return job
        old = None if self.old is None else clock_in(self.old, self.zone)
        return replan_in_zone(job, old, clock(self.zone), current().version, now, self.calendars.find,
                              self.calendars.find_former)

    def mark(self, job: Job) -> Job:
        """Return the job with its old plan and the version of this process."""
        return replace(job, zone_version=current().version)


def find_zone_changes(cursor: Cursor, recorded: RecordedZones, now: datetime) -> Sequence[ZoneChange]:
    """Return the changes of zones since older zone data that planned jobs."""
    changes = []
    for zone, version in list_plans(cursor):
        if version >= current().version or zone not in zone_names():
            continue
        old = recorded.read(version, zone, cursor) if version else None
        if old is None or zone_changed(zone, old, current(), now):
            changes.append(ZoneChange(zone, version, old))
    return changes
