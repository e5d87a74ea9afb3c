"""Plan the emission of occurrences that passed while nothing could run."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.domain.messages import MAX_MISSED, OnMissed
from scheduler.domain.recurrence import Schedule

GRACE = timedelta(seconds=5)  # busy, or another replica takes over: late, not missed
_PROMPT = timedelta(seconds=1)  # within this time the producer was not interrupted
_STEPPED = 50  # occurrences: stepping through fewer is cheaper than counting


@dataclass(slots=True)  # not frozen, for speed: see definition.py
class EmissionPlan:
    """The occurrence to emit now, the skipped occurrences, and the next run."""

    emit: datetime | None = None
    folded: int = 0
    passed: tuple[datetime, ...] = ()
    passed_count: int = 0
    reason: str | None = None
    next_run_at: datetime | None = None


def plan(
    schedule: Schedule,
    due_at: datetime,
    now: datetime,
    on_missed: OnMissed,
    max_lateness: timedelta | None,
    *,
    one_shot: bool,
    missed_before: datetime | None = None,
) -> EmissionPlan:
    """Return the plan for the occurrences from `due_at`, which is due, to `now`."""
    following = schedule.next_after(due_at)
    if following is not None and following <= now:
        due = _due(schedule, due_at, following, now)
        if on_missed is OnMissed.ALL:
            return _one_of_all(due, now, max_lateness)
    elif max_lateness is None and on_missed is not OnMissed.SKIP:
        return EmissionPlan(due_at, next_run_at=following)  # the usual case
    else:
        due = _Due((due_at,), 1, following)
    newest = due.newest[-1]
    if max_lateness is not None and now - newest > max_lateness:
        return due.plan(None, "max_lateness")
    if on_missed is OnMissed.SKIP and not one_shot and is_missed(newest, now, missed_before):
        return due.plan(None, "skip")
    return due.plan(newest, str(on_missed), fold=on_missed is OnMissed.LATEST)


@dataclass(frozen=True, slots=True)
class _Due:
    """Due occurrences: the newest ones in order, their total number, and the first future occurrence."""

    newest: tuple[datetime, ...]
    total: int
    coming: datetime | None

    def plan(self, emit: datetime | None, reason: str, *, fold: bool = False) -> EmissionPlan:
        """Emit one occurrence or none, and skip the earlier ones."""
        remaining = 0 if emit is None else len(self.newest) - self.newest.index(emit)
        passed = self.newest[: len(self.newest) - remaining][-MAX_MISSED:]
        count = self.total - remaining
        following = self.coming if remaining <= 1 else self.newest[1 - remaining]
        return EmissionPlan(emit, count if fold else 0, passed, count, reason if count else None, following)


def _due(schedule: Schedule, due_at: datetime, following: datetime | None, now: datetime) -> _Due:
    """Collect due occurrences: step through a few, count many."""
    stepped, coming = [due_at], following
    while coming is not None and coming <= now and len(stepped) < _STEPPED:
        stepped.append(coming)
        coming = schedule.next_after(coming)
    if coming is None or coming > now:
        return _Due(tuple(stepped), len(stepped), coming)
    later = schedule.count(due_at, now)  # without `due_at`: nothing is before the first instant of the calendar
    # Enough to emit 100 and to list the 100 before them.
    newest = [due_at, *schedule.newest(now, 2 * MAX_MISSED, due_at, later)][-2 * MAX_MISSED :]
    return _Due(tuple(newest), later + 1, schedule.next_after(now))


def _one_of_all(due: _Due, now: datetime, max_lateness: timedelta | None) -> EmissionPlan:
    """Emit the oldest of the newest 100 that is not too late; later calls emit the others."""
    newest = due.newest[-MAX_MISSED:]
    timely = [instant for instant in newest if max_lateness is None or now - instant <= max_lateness]
    return due.plan(timely[0] if timely else None, "limit" if len(timely) == MAX_MISSED else "max_lateness")


def is_missed(instant: datetime, now: datetime, missed_before: datetime | None) -> bool:
    """Return whether the newest due occurrence is missed, not just late.

    If the host's clock runs ahead, a resume may be in the future: occurrences due before it are still on time.
    """
    late = now - instant
    return late > GRACE or (
        missed_before is not None and instant <= missed_before and (missed_before <= now or late > _PROMPT)
    )
