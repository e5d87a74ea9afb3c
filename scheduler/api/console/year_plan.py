"""A job's coming half year, day by day: planned occurrences, those moved to a day, and closed days."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.jobs.adjusted import planner_of
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.recurrence import Schedule, Spec, compile_schedule, local_time
from scheduler.domain.recurrence.business_calendar import BusinessCalendar
from scheduler.postgres.jobs.lists import JobRow

MAX_PLANNED = 1_500  # occurrences moved one by one; later days count the rule's own occurrences
_MAX_MERGED = 10
_AHEAD = timedelta(days=200)
_MICRO = timedelta(microseconds=1)


@dataclass(slots=True)
class PlannedDay:
    """The occurrences that are due on one day."""

    due: int = 0
    sources: set[date] = field(default_factory=set)  # the days that the rule names for them


@dataclass(frozen=True, slots=True)
class YearPlan:
    """The occurrences of a job by day, and its calendar."""

    schedule: Schedule | None = None  # None: nothing is planned
    calendar: BusinessCalendar | None = None
    days: Mapping[date, PlannedDay] = field(default_factory=dict)  # of a job whose occurrences can move
    days_until: date | None = None  # end of `days`; None: occurrences do not move

    def planned(self, day: date, after: datetime, until: datetime) -> int:
        """Count the occurrences of a day, which lasts from `after` until `until`."""
        if self.schedule is None or until <= after:
            return 0
        if self.days_until is not None and day < self.days_until:
            return self.days[day].due if day in self.days else 0
        if self.days_until is not None and self.closed(day) is not None:
            return 0
        return self.schedule.count(after - _MICRO, until - _MICRO)

    def moved_from(self, day: date) -> list[date]:
        """Return the other days whose occurrences are emitted on this day."""
        return sorted(self.days[day].sources - {day}) if day in self.days else []

    def closed(self, day: date) -> str | None:
        """Return the name of a closed day, which may be empty; None for an open day."""
        if self.calendar is None or self.calendar.is_open(day.toordinal()):
            return None
        return self.calendar.closed_name(day.toordinal())


def plan_year(row: JobRow, effective: EffectiveCalendar | None, now: datetime) -> YearPlan:
    """Return the plan of a job; only a pending job has planned occurrences."""
    definition, calendar = row.job.definition, None if effective is None else effective.calendar
    if definition is None or row.job.status is not JobStatus.PENDING or row.job.next_run_at is None:
        return YearPlan(calendar=calendar)
    spec = definition.spec
    schedule = compile_schedule(spec)
    if not spec.adjusted or (spec.calendar is not None and effective is None):
        return YearPlan(schedule, calendar)
    days, until = _moved_days(row.job, spec, effective, now)
    return YearPlan(schedule, calendar, days, until)


def _moved_days(
    job: Job, spec: Spec, effective: EffectiveCalendar | None, now: datetime
) -> tuple[dict[date, PlannedDay], date]:
    days: dict[date, PlannedDay] = {}
    end = now + _AHEAD
    planner = planner_of(job, spec, effective)
    for number, occurrence in enumerate(planner.after(now)):
        if occurrence.due_at >= end:
            break
        here = local_time(occurrence.due_at, spec.timezone).date()
        if number == MAX_PLANNED:
            return days, here
        day = days.setdefault(here, PlannedDay())
        day.due += 1
        merged = planner.merged(occurrence, _MAX_MERGED) if occurrence.merged else []
        day.sources |= {local_time(nominal, spec.timezone).date() for nominal in (occurrence.nominal_at, *merged)}
    return days, end.date()
