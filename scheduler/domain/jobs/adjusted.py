"""Plan the occurrences of jobs with a calendar, a window or jitter.

Occurrences are identified by their nominal instants. Those up to `settled_until` were emitted or missed. Jitter
may delay one beyond later ones: it is unsettled if it is due after `settled_due`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from scheduler.domain.calendars import EffectiveCalendar, FindEffective
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Definition
from scheduler.domain.recurrence import Clock, Spec, compile_schedule
from scheduler.domain.recurrence.adjustment_fields import checked_planner
from scheduler.domain.recurrence.business_calendar import OnClosed
from scheduler.domain.recurrence.moved_days import END, MICRO, plus
from scheduler.domain.recurrence.planner import Adjustments, PlannedOccurrence, Planner
from scheduler.domain.recurrence.schedule import to_instant, to_seconds
from scheduler.domain.recurrence.window import Window

MOST_SKIPS = 100  # in one ScheduleMissed
_OLDEST_SKIP = timedelta(days=7)  # before the request: earlier ones are not reported
_MOST_EXAMINED = 300  # nominal occurrences, or whole days, per report of skips
_MOST_SEARCHED = 40  # per search for the next one, which continues later


class Settled(Protocol):
    """How far the occurrences of a job are settled."""

    @property
    def settled_until(self) -> datetime | None:
        """The latest nominal instant that was emitted or missed."""

    @property
    def settled_due(self) -> datetime | None:
        """The latest due time of these, if jitter may delay one beyond later ones."""


class PlannedJob(Settled, Protocol):
    """A job with the columns that plan its occurrences."""

    @property
    def id(self) -> str:
        """Its id, on which the jitter depends."""

    @property
    def next_run_at(self) -> datetime | None:
        """When the next occurrence is due."""

    @property
    def nominal_at(self) -> datetime | None:
        """The nominal instant of next_run_at; None if it was not moved."""

    @property
    def reported_until(self) -> datetime | None:
        """Skipped occurrences up to this nominal instant are reported."""

    @property
    def skip_at(self) -> datetime | None:
        """When to report the next ones."""

    @property
    def calendar_revision(self) -> int | None:
        """The calendar that planned it."""


@dataclass(slots=True)
class AdjustedState:
    """The columns that plan the occurrences of a job."""

    next_run_at: datetime | None = None
    nominal_at: datetime | None = None
    settled_until: datetime | None = None
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
    found = find(tenant, spec.calendar)
    if found is None:
        raise Rejected([Problem("calendar", f"there is no calendar {spec.calendar}")])
    return found


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


def planner_of(job_id: str, spec: Spec, effective: EffectiveCalendar | None) -> Planner:
    """Return the planner of a stored job."""
    return Planner(spec, adjustments_of(spec, effective), UUID(job_id))


def plan_first(  # noqa: PLR0917 - a job and its calendar
    job_id: str, tenant: str, definition: Definition, find: FindEffective, now: datetime,
    settled_until: datetime | None = None
) -> AdjustedState:
    """Return the first occurrence of a new schedule after `settled_until`. Raises Rejected."""
    spec = definition.spec
    effective = effective_calendar(spec, tenant, find)
    planner = checked_planner(spec, adjustments_of(spec, effective), UUID(job_id))
    earliest = max(plus(planner.schedule.starts_at, -MICRO), now - _OLDEST_SKIP)
    state = AdjustedState(settled_until=settled_until, reported_until=None if effective is None else earliest)
    return _with_next(state, planner, effective)


def plan_again(job: PlannedJob, spec: Spec, effective: EffectiveCalendar | None) -> AdjustedState:
    """Return the plan by another version of a job's calendar; what was emitted or reported is final."""
    reported, nominal = job.reported_until, job.nominal_at or job.next_run_at
    settled = job.settled_until
    if reported is not None and settled is not None and (nominal is None or nominal > reported):
        settled = max(settled, reported)
    state = AdjustedState(settled_until=settled, settled_due=job.settled_due, reported_until=reported)
    return _with_next(state, planner_of(job.id, spec, effective), effective)


def in_zone(job: PlannedJob, old: Clock, new: Clock) -> AdjustedState:
    """Return the plan with the same settled wall times by other zone data."""
    return AdjustedState(
        job.next_run_at, job.nominal_at, _moved(job.settled_until, old, new), job.settled_due,
        _moved(job.reported_until, old, new), job.skip_at, job.calendar_revision,
    )


def _moved(instant: datetime | None, old: Clock, new: Clock) -> datetime | None:
    if instant is None:
        return None
    second, fraction = to_seconds(instant)
    wall = second + old.offset(second)
    return max(instant, to_instant(new.to_utc(wall), fraction))


def _with_next(state: AdjustedState, planner: Planner, effective: EffectiveCalendar | None) -> AdjustedState:
    first = next(unsettled(planner, state), None)
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


def unsettled(planner: Planner, job: Settled) -> Iterator[PlannedOccurrence]:
    """Yield the occurrences that were neither emitted nor missed, in the order of due_at."""
    settled, settled_due = job.settled_until, job.settled_due
    if settled is None:
        yield from planner.all()
        return
    start = planner.earliest_planned(settled)
    if settled_due is not None:
        start = min(start, settled_due)
    for occurrence in planner.after(plus(start, -MICRO)):
        planned = occurrence.planned_at or occurrence.due_at
        if occurrence.nominal_at > settled or (
            settled_due is not None and planned <= settled_due < occurrence.due_at
        ):
            yield occurrence


def next_skip(planner: Planner, after: datetime) -> datetime | None:
    """Return when to report the next skipped occurrence, or to go on searching for it; None if there is none."""
    skips, until = planner.calendar_skips(after, END, 1, _MOST_SEARCHED)
    if skips:
        return skips[0]
    return until if until < END else None


def report_skips(job: PlannedJob, planner: Planner, now: datetime) -> SkipReport:
    """Return the skipped occurrences up to `now` that are not reported yet, at most MOST_SKIPS."""
    reported = job.reported_until or plus(planner.schedule.starts_at, -MICRO)
    if reported >= now:
        return SkipReport((), reported, next_skip(planner, reported))
    skips, until = planner.calendar_skips(reported, now, MOST_SKIPS, _MOST_EXAMINED)
    return SkipReport(tuple(skips), until, next_skip(planner, until))


def settled_nominal(job: PlannedJob, stored: Spec, spec: Spec, now: datetime, limit: int) -> datetime | None:
    """Return the newest nominal instant of a new schedule that was settled under the stored one."""
    before, after = compile_schedule(stored), compile_schedule(spec)
    bound = max(now, job.settled_until or now)
    for nominal in reversed(after.newest_until(bound, limit)):
        if stored.adjusted:
            settled = job.settled_until is not None and nominal <= job.settled_until
        else:
            settled = job.next_run_at is None or nominal < job.next_run_at
        if settled and before.fires_at(nominal):
            return nominal
    return None
