"""Plan the occurrences of jobs with a calendar, a window or jitter."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from scheduler.domain.calendars import EffectiveCalendar, FindEffective, FindFormer
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.joined import joined
from scheduler.domain.jobs.settled import SettledJob, moved_record, settled_record, stored_record
from scheduler.domain.recurrence import Clock, Spec, compile_schedule
from scheduler.domain.recurrence.adjustment_fields import checked_planner
from scheduler.domain.recurrence.business_calendar import OnClosed
from scheduler.domain.recurrence.moved_days import BEGINNING, END, MICRO, plus
from scheduler.domain.recurrence.planner import Adjustments, PlannedOccurrence, Planner
from scheduler.domain.recurrence.window import Window

MAX_SKIPS = 100  # in one ScheduleMissed
_OLDEST_SKIP = timedelta(days=7)  # before the request: earlier ones are not reported
_MAX_EXAMINED = 300  # nominal occurrences, or whole days, per report of skips
_MAX_SEARCHED = 40  # per search for the next one, which continues later


class PlannedJob(SettledJob, Protocol):
    """A job with the columns that plan its occurrences."""

    @property
    def id(self) -> str:
        """The job's id, which determines the jitter."""

    @property
    def next_run_at(self) -> datetime | None:
        """The due time of the next occurrence."""

    @property
    def nominal_at(self) -> datetime | None:
        """The nominal instant of next_run_at; None if it was not moved."""

    @property
    def calendar_revision(self) -> int | None:
        """The calendar that planned it."""


@dataclass(slots=True)
class AdjustedState:
    """The columns that plan the occurrences of a job."""

    next_run_at: datetime | None = None
    nominal_at: datetime | None = None
    settled_until: datetime | None = None
    unsettled: tuple[datetime, ...] | None = None
    settled_due: datetime | None = None
    reported_until: datetime | None = None
    skip_at: datetime | None = None
    calendar_revision: int | None = None


@dataclass(frozen=True, slots=True)
class SkipReport:
    """Skipped occurrences to report; all are reported up to `reported_until`."""

    nominals: tuple[datetime, ...]
    reported_until: datetime
    skip_at: datetime | None  # when to search for the next ones


def effective_calendar(spec: Spec, tenant: str, find: FindEffective) -> EffectiveCalendar | None:
    """Return the calendar of a schedule, None without one. Raises Rejected if it is unknown."""
    if spec.calendar is None:
        return None
    calendar = find(tenant, spec.calendar)
    if calendar is None:
        raise Rejected([Problem("calendar", f"there is no calendar {spec.calendar}")])
    return calendar


def adjustments_of(spec: Spec, effective: EffectiveCalendar | None) -> Adjustments:
    """Return the adjustments of a stored schedule."""
    return Adjustments(
        None if effective is None else effective.calendar,
        OnClosed.SKIP if spec.on_closed is None else OnClosed(spec.on_closed),
        None if spec.sending_window is None else _window(spec.sending_window),
        spec.jitter or timedelta(),
    )


@lru_cache(maxsize=1024)
def _window(text: str) -> Window:
    return Window.of(text)


def planner_of(
    job: PlannedJob, spec: Spec, effective: EffectiveCalendar | None, local: Clock | None = None
) -> Planner:
    """Return the planner of a stored job; `local` is a clock of other zone data."""
    planner = Planner(spec, adjustments_of(spec, effective), UUID(job.id), local)
    planner.limit(stored_record(job).ranges)
    return planner


def former_calendar(
    job: PlannedJob, spec: Spec, effective: EffectiveCalendar | None, find_former: FindFormer
) -> EffectiveCalendar | None:
    """Return the calendar that planned a job; `effective` if that is not known any more."""
    revision = job.calendar_revision
    if effective is None or revision is None or revision == effective.revision or spec.calendar is None:
        return effective
    former = find_former(spec.calendar, revision)
    return effective if former is None else effective._replace(calendar=former, revision=revision)


def plan_first(  # noqa: PLR0917 - a job and its calendar
    job_id: str, tenant: str, definition: Definition, find: FindEffective, now: datetime,
    settled_until: datetime | None = None
) -> AdjustedState:
    """Return the first occurrence of a new schedule after `settled_until`. Raises Rejected."""
    spec = definition.spec
    effective = effective_calendar(spec, tenant, find)
    planner = checked_planner(spec, adjustments_of(spec, effective), UUID(job_id))
    earliest = max(plus(planner.schedule.starts_at, -MICRO), now - _OLDEST_SKIP, settled_until or BEGINNING)
    state = AdjustedState(settled_until=settled_until, reported_until=None if effective is None else earliest)
    planner.limit(stored_record(state).ranges)
    return _with_next(state, planner, effective, next(unsettled(planner, state), None))


def plan_again(
    job: PlannedJob, before: Planner, after: Planner, effective: EffectiveCalendar | None, now: datetime
) -> AdjustedState:
    """Return the plan of `after` for a job planned by `before`; what was emitted or reported is final."""
    record = settled_record(job, before, now)
    if after.names.clock is not before.names.clock:
        record = moved_record(record, before, after)
    record = record.including(joined(record, before, after), after.schedule)
    after.limit(record.ranges)
    reported = None if effective is None else record.start or job.reported_until
    state = AdjustedState(settled_until=record.settled_until, unsettled=record.unsettled, reported_until=reported)
    return _with_next(state, after, effective, next(unsettled(after, state), None))


def plan_with_calendar(  # noqa: PLR0917 - a job, its calendars and its zone
    job: PlannedJob, spec: Spec, effective: EffectiveCalendar | None, find_former: FindFormer, now: datetime,
    local: Clock | None = None
) -> AdjustedState | None:
    """Return the plan by the current state of a job's calendar; None if that planned it already."""
    if effective is None or effective.revision == job.calendar_revision:
        return None
    former = former_calendar(job, spec, effective, find_former)
    before, after = (planner_of(job, spec, calendar, local) for calendar in (former, effective))
    return plan_again(job, before, after, effective, now)


def _with_next(
    state: AdjustedState, planner: Planner, effective: EffectiveCalendar | None, first: PlannedOccurrence | None
) -> AdjustedState:
    skip_at = None
    if effective is not None and state.reported_until is not None:
        skip_at = next_skip(planner, state.reported_until)
    return replace(
        state, next_run_at=None if first is None else first.due_at, nominal_at=moved_from(first), skip_at=skip_at,
        calendar_revision=None if effective is None else effective.revision,
    )


def moved_from(occurrence: PlannedOccurrence | None) -> datetime | None:
    """Return the nominal instant of an occurrence that was moved."""
    return None if occurrence is None or not occurrence.moved else occurrence.nominal_at


def unsettled(planner: Planner, job: SettledJob) -> Iterator[PlannedOccurrence]:
    """Yield the occurrences that were neither emitted nor missed, in the order of due_at.

    The planner excludes occurrences that were settled under earlier plans.
    """
    if job.settled_due is not None:
        return planner.after(job.settled_due)
    start = stored_record(job).start
    return planner.all() if start is None else planner.after(plus(planner.earliest_planned(start), -MICRO))


def next_skip(planner: Planner, after: datetime) -> datetime | None:
    """Return the time to report the next skipped occurrence, or to continue the search; None if there is none."""
    skips, until = planner.calendar_skips(after, END, 1, _MAX_SEARCHED)
    if skips:
        return skips[0]
    return until if until < END else None


def report_skips(job: PlannedJob, planner: Planner, now: datetime) -> SkipReport:
    """Return the skipped occurrences up to `now` that are not reported yet, at most MAX_SKIPS."""
    reported = job.reported_until or plus(planner.schedule.starts_at, -MICRO)
    if reported >= now:
        return SkipReport((), reported, next_skip(planner, reported))
    skips, until = planner.calendar_skips(reported, now, MAX_SKIPS, _MAX_EXAMINED)
    record = stored_record(job)
    skips = [nominal for nominal in skips if not record.includes(nominal)]
    return SkipReport(tuple(skips), until, next_skip(planner, until))


def settled_nominal(  # noqa: PLR0917 - a job and both schedules
    job: PlannedJob, stored: Spec, effective: EffectiveCalendar | None, spec: Spec, now: datetime, limit: int
) -> datetime | None:
    """Return the newest nominal instant of a new schedule that was settled under the stored one.

    `effective` is the calendar of the stored one.
    """
    before, after = compile_schedule(stored), compile_schedule(spec)
    record = settled_record(job, planner_of(job, stored, effective), now) if stored.adjusted else None
    bound = now if record is None else max(now, record.settled_until or now)
    for nominal in reversed(after.newest_until(bound, limit)):
        if record is None:
            settled = job.next_run_at is None or nominal < job.next_run_at
        else:
            settled = record.includes(nominal)
        if settled and before.fires_at(nominal):
            return nominal
    return None
