"""Changes of calendars since the jobs that use them were planned."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from scheduler.domain.jobs.job import Job
from scheduler.domain.jobs.replan import Cause, replan_with_calendar
from scheduler.postgres.connection import Cursor
from scheduler.postgres.effective_calendars import JobCalendars, runner
from scheduler.postgres.zone_files import PlannedZones
from scheduler.resources import query

_EFFECTIVE = query("calendars/effective_revision")
_LIST_CHANGED = query("calendars/list_changed", effective=_EFFECTIVE)
_LIST_JOBS = query("calendars/list_outdated_jobs", outdated=query(
    "calendars/outdated_jobs", calendar="%(name)s", owner="%(tenant)s", revision="%(revision)s::bigint"))
_SETTLE = query("calendars/settle_changed", outdated=query(
    "calendars/outdated_jobs", calendar="changed.name", owner="changed.tenant", revision=f"({_EFFECTIVE})"))


@dataclass(frozen=True, slots=True)
class CalendarChange:
    """A calendar that was stored or deleted, and the state that applies to its jobs now."""

    name: str
    tenant: str  # the owner
    version: int
    revision: int | None  # of the calendar that applies; None if there is none
    calendars: JobCalendars = field(default_factory=JobCalendars, compare=False, repr=False)
    zones: PlannedZones = field(default_factory=PlannedZones, compare=False, repr=False)

    @property
    def cause(self) -> Cause:
        """The change, for the event."""
        return Cause("calendar", self.name, self.version)

    def list_jobs(self, cursor: Cursor, limit: int) -> list[str]:
        """Return ids of jobs that were planned before the change and are not due."""
        cursor.execute(_LIST_JOBS, {
            "name": self.name, "tenant": self.tenant, "revision": self.revision, "limit": limit,
        })
        return [job_id for job_id, in cursor.fetchall()]

    def prepare(self, cursor: Cursor, jobs: Sequence[Job]) -> None:
        """Read the calendars of jobs before they are planned."""
        self.calendars.load(runner(cursor), jobs)
        self.zones.load(runner(cursor), jobs)

    def plan(self, job: Job, now: datetime) -> Job:
        """Return the job planned with its calendar; the same job if it already is."""
        local = self.zones.clock(job)
        return replan_with_calendar(job, self.calendars.find, now, self.calendars.find_former, local)

    def mark(self, job: Job) -> Job:
        """Return the job with its old plan and the revision of its calendar."""
        return replace(job, calendar_revision=self.revision)


def find_calendar_changes(cursor: Cursor, now: datetime) -> Sequence[CalendarChange]:  # noqa: ARG001 - a Find
    """Return the changed calendars with jobs to plan again; the others count as settled from now on."""
    cursor.execute(_SETTLE)
    cursor.execute(query("calendars/delete_former"))
    cursor.execute(_LIST_CHANGED)
    return [CalendarChange(*row) for row in cursor.fetchall()]
