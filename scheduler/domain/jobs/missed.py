"""What becomes of occurrences that passed while nothing could run: pure functions of schedule and time."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.domain.recurrence import Schedule

GRACE = timedelta(seconds=5)  # a busy moment, or another replica that takes over: late, not missed
_AT_ONCE = timedelta(seconds=1)  # who decides within this time has not been away
MOST = 100  # how many missed runs are emitted by `all`, and named in a ScheduleMissed
_STEPPED = 50  # up to so many are stepped through, which is cheaper than counting
_MICRO = timedelta(microseconds=1)


class OnMissed(StrEnum):
    """What a host wants to hear of what it missed."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


@dataclass(slots=True)  # not frozen, for speed: see definition.py
class EmissionPlan:
    """What to emit now, what is passed over, and what comes next."""

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
    """Decide about the occurrences from `due_at`, which is due, up to `now`."""
    following = schedule.next_after(due_at)
    if following is not None and following <= now:
        due = _due(schedule, due_at, following, now)
        if on_missed is OnMissed.ALL:
            return _one_of_all(due, now, max_lateness)
    elif max_lateness is None and on_missed is not OnMissed.SKIP:
        return EmissionPlan(due_at, next_run_at=following)  # nearly always
    else:
        due = _Due((due_at,), 1, following)
    newest = due.newest[-1]
    if max_lateness is not None and now - newest > max_lateness:
        return due.plan(None, "max_lateness")
    if on_missed is OnMissed.SKIP and not one_shot and _missed(newest, now, missed_before):
        return due.plan(None, "skip")
    return due.plan(newest, str(on_missed), fold=on_missed is OnMissed.LATEST)


@dataclass(frozen=True, slots=True)
class _Due:
    """The occurrences that are due: the newest of them in order, how many they are, and the first to come."""

    newest: tuple[datetime, ...]
    total: int
    coming: datetime | None

    def plan(self, emit: datetime | None, reason: str, *, fold: bool = False) -> EmissionPlan:
        """Emit one of them or none, and pass over those before it."""
        kept = 0 if emit is None else len(self.newest) - self.newest.index(emit)
        passed = self.newest[: len(self.newest) - kept][-MOST:]
        count = self.total - kept
        following = self.coming if kept <= 1 else self.newest[1 - kept]
        return EmissionPlan(emit, count if fold else 0, passed, count, reason if count else None, following)


def _due(schedule: Schedule, due_at: datetime, following: datetime | None, now: datetime) -> _Due:
    """Collect what is due by stepping while it is little, and by counting when it is much."""
    stepped, coming = [due_at], following
    while coming is not None and coming <= now and len(stepped) < _STEPPED:
        stepped.append(coming)
        coming = schedule.next_after(coming)
    if coming is None or coming > now:
        return _Due(tuple(stepped), len(stepped), coming)
    after = due_at - _MICRO
    total = schedule.count(after, now)
    # Enough to emit 100 and to name another 100 before them.
    newest = schedule.newest(now, 2 * MOST, after, total)
    return _Due(tuple(newest), total, schedule.next_after(now))


def _one_of_all(due: _Due, now: datetime, max_lateness: timedelta | None) -> EmissionPlan:
    """Emit the oldest of the newest 100 that is not too late; the following ones come by further calls."""
    kept = [one for one in due.newest[-MOST:] if max_lateness is None or now - one <= max_lateness]
    return due.plan(kept[0] if kept else None, "limit" if len(kept) == MOST else "max_lateness")


def _missed(instant: datetime, now: datetime, missed_before: datetime | None) -> bool:
    """Say whether the newest due occurrence counts as missed rather than merely late.

    Where its host's clock puts a resume ahead of now, what falls due in between is on time all the same.
    """
    late = now - instant
    return late > GRACE or (
        missed_before is not None and instant <= missed_before and (missed_before <= now or late > _AT_ONCE)
    )
