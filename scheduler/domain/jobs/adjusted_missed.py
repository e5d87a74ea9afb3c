"""Plan the emission of due occurrences of a job with a calendar, a window or jitter."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from scheduler.domain.jobs.adjusted import AdjustedState, PlannedJob, moved_from, unsettled
from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.missed import is_missed
from scheduler.domain.messages import MAX_MISSED, OnMissed
from scheduler.domain.recurrence.moved_days import plus
from scheduler.domain.recurrence.planner import PlannedOccurrence, Planner

_LISTED = 2 * MAX_MISSED  # enough to emit 100 and to list the 100 before them
_MAX_STEPPED = 2_000  # due occurrences; of more, the newest are searched and the others counted


class DueJob(PlannedJob, Protocol):
    """A due job."""

    @property
    def missed_before(self) -> datetime | None:
        """End of its last pause."""


@dataclass(slots=True)
class AdjustedPlan:
    """The occurrence to emit now, the passed ones, and the state of the job afterwards."""

    state: AdjustedState | None = None
    emit: PlannedOccurrence | None = None
    folded: int = 0  # occurrences that the event replaces
    passed: tuple[datetime, ...] = ()  # nominal instants
    passed_count: int = 0
    reason: str | None = None
    merged: tuple[datetime, ...] = ()  # nominal instants merged into the emitted occurrence
    waits_until: datetime | None = None  # nothing happens until the window opens


@dataclass(frozen=True, slots=True)
class _DueOccurrences:
    listed: Sequence[PlannedOccurrence]  # the newest ones, in order
    unlisted: int  # the number of other nominal ones
    coming: PlannedOccurrence | None


def plan_adjusted(job: DueJob, definition: Definition, planner: Planner, now: datetime) -> AdjustedPlan:
    """Return the plan for the occurrences that are due at `now`."""
    due = _due(planner, job, now)
    if not due.listed:  # its row is outdated
        return AdjustedPlan(_state(job, (), due.coming))
    newest, lateness = due.listed[-1], definition.max_lateness
    late = is_missed(newest.due_at, now, job.missed_before)
    if late and (opening := planner.opening_for(now)) is not None:
        return AdjustedPlan(waits_until=opening)
    if definition.on_missed is OnMissed.ALL:
        return _one_of_all(job, planner, due, now, lateness)
    if lateness is not None and now - newest.due_at > lateness:
        return _passed(job, planner, due, len(due.listed), "max_lateness")
    skips = definition.on_missed is OnMissed.SKIP and not definition.spec.one_shot
    if skips and late:
        return _passed(job, planner, due, len(due.listed), "skip")
    plan = _passed(job, planner, due, len(due.listed) - 1, str(definition.on_missed))
    return _emitting(plan, planner, newest, fold=definition.on_missed is OnMissed.LATEST)


def _one_of_all(
    job: DueJob, planner: Planner, due: _DueOccurrences, now: datetime, lateness: timedelta | None
) -> AdjustedPlan:
    """Emit the oldest of the newest 100 that is not too late; later calls emit the others."""
    timely = [occurrence for occurrence in due.listed[-MAX_MISSED:]
              if lateness is None or now - occurrence.due_at <= lateness]
    if not timely:
        return _passed(job, planner, due, len(due.listed), "max_lateness")
    count = due.listed.index(timely[0])
    reason = "limit" if len(timely) == MAX_MISSED else "max_lateness"
    plan = _passed(job, planner, due, count, reason, following=due.listed[count + 1 :], emits=1)
    return _emitting(plan, planner, timely[0], fold=False)


def _passed(  # noqa: PLR0917 - a plan and its parts
    job: DueJob, planner: Planner, due: _DueOccurrences, count: int, reason: str,
    following: Sequence[PlannedOccurrence] = (), emits: int | None = None
) -> AdjustedPlan:
    """Skip the first `count` listed occurrences and all unlisted ones."""
    passed = due.listed[:count]
    settled = due.listed[: count + (len(due.listed) - count if emits is None else emits)]
    coming = following[0] if following else due.coming
    newest = passed[-MAX_MISSED:]
    times = sorted(nominal for occurrence in newest for nominal in _nominals(planner, occurrence))
    number = due.unlisted + _size(passed)
    plan = AdjustedPlan(_state(job, settled, coming))
    if number:
        plan.passed, plan.passed_count, plan.reason = tuple(times[-MAX_MISSED:]), number, reason
    return plan


def _emitting(plan: AdjustedPlan, planner: Planner, occurrence: PlannedOccurrence, *, fold: bool) -> AdjustedPlan:
    plan.emit = occurrence
    plan.folded = occurrence.merged + (plan.passed_count if fold else 0)
    if occurrence.merged:
        plan.merged = tuple(planner.merged(occurrence, MAX_MISSED))
    return plan


def _nominals(planner: Planner, occurrence: PlannedOccurrence) -> list[datetime]:
    merged = planner.merged(occurrence, MAX_MISSED) if occurrence.merged else []
    return [*merged, occurrence.nominal_at]


def _state(
    job: DueJob, settled: Sequence[PlannedOccurrence], coming: PlannedOccurrence | None
) -> AdjustedState:
    """Return the state after occurrences are settled."""
    due_times = [] if job.settled_due is None else [job.settled_due]
    due_times += [occurrence.due_at for occurrence in settled]
    return AdjustedState(
        None if coming is None else coming.due_at, moved_from(coming), job.settled_until, job.unsettled,
        max(due_times, default=None), job.reported_until, job.skip_at, job.calendar_revision,
    )


def _due(planner: Planner, job: DueJob, now: datetime) -> _DueOccurrences:
    """Return the due occurrences: step through a few, count many."""
    listed: list[PlannedOccurrence] = []
    for occurrence in unsettled(planner, job):
        if occurrence.due_at > now:
            return _DueOccurrences(listed, 0, occurrence)
        if len(listed) == _MAX_STEPPED:
            return _many_due(planner, listed, now)
        listed.append(occurrence)
    return _DueOccurrences(listed, 0, None)


def _many_due(planner: Planner, stepped: Sequence[PlannedOccurrence], now: datetime) -> _DueOccurrences:
    """Return the newest due occurrences, and count those before them."""
    first, span = stepped[0], timedelta(seconds=1)
    while True:
        start = max(first.due_at, plus(now, -span))
        newest: deque[PlannedOccurrence] = deque(maxlen=_LISTED)
        coming = None
        for occurrence in planner.after(start):
            if occurrence.due_at > now:
                coming = occurrence
                break
            newest.append(occurrence)
        if start == first.due_at or len(newest) == _LISTED:
            break
        span *= 2
    total = _size(stepped) + planner.count_due(stepped[-1].due_at, now)
    return _DueOccurrences(list(newest), total - _size(newest), coming)


def _size(occurrences: Iterable[PlannedOccurrence]) -> int:
    """Return the number of nominal occurrences."""
    return sum(1 + occurrence.merged for occurrence in occurrences)
