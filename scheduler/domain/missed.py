"""What becomes of occurrences that passed while nothing could run: pure functions of schedule and time."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.domain.recurrence import Schedule

GRACE = timedelta(seconds=30)  # another replica takes over within 30 s: until then a run is late, not missed
MOST = 100  # how many missed runs are emitted by `all`, and named in a ScheduleMissed
_MICRO = timedelta(microseconds=1)


class OnMissed(StrEnum):
    """What a host wants to hear of what it missed."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Plan:
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
) -> Plan:
    """Decide about the occurrences from `due_at`, which is due, up to `now`."""
    following = schedule.next_after(due_at)
    if following is not None and following <= now:
        return _several(schedule, due_at, now, on_missed, max_lateness, missed_before)
    if max_lateness is not None and now - due_at > max_lateness:
        return Plan(None, 0, (due_at,), 1, "max_lateness", following)
    if on_missed is OnMissed.SKIP and not one_shot and _missed(due_at, now, missed_before):
        return Plan(None, 0, (due_at,), 1, "skip", following)
    return Plan(due_at, next_run_at=following)


def _several(  # noqa: PLR0917 - as above
    schedule: Schedule,
    due_at: datetime,
    now: datetime,
    on_missed: OnMissed,
    max_lateness: timedelta | None,
    missed_before: datetime | None,
) -> Plan:
    """Decide when newer occurrences are due too."""
    if on_missed is OnMissed.ALL:
        return _one_of_all(schedule, due_at, now, max_lateness)
    newest = schedule.newest(now, 1, due_at)[0]
    coming = schedule.next_after(now)
    too_late = max_lateness is not None and now - newest > max_lateness
    skipped = on_missed is OnMissed.SKIP and _missed(newest, now, missed_before)
    if too_late or skipped:
        passed, total = _passed(schedule, due_at, now)
        return Plan(None, 0, passed, total, "max_lateness" if too_late else "skip", coming)
    passed, total = _passed(schedule, due_at, newest - _MICRO)
    folded = total if on_missed is OnMissed.LATEST else 0
    return Plan(newest, folded, passed, total, str(on_missed), coming)


def _one_of_all(schedule: Schedule, due_at: datetime, now: datetime, max_lateness: timedelta | None) -> Plan:
    """Emit the oldest of the newest 100 that is not too late; the following ones come by further calls."""
    oldest = due_at if max_lateness is None else max(due_at, now - max_lateness)
    kept = schedule.newest(now, MOST, oldest - _MICRO)
    if not kept:
        passed, total = _passed(schedule, due_at, now)
        return Plan(None, 0, passed, total, "max_lateness", schedule.next_after(now))
    emit = kept[0]
    following = kept[1] if len(kept) > 1 else schedule.next_after(now)
    if emit == due_at:
        return Plan(emit, next_run_at=following)
    passed, total = _passed(schedule, due_at, emit - _MICRO)
    return Plan(emit, 0, passed, total, "limit" if len(kept) == MOST else "max_lateness", following)


def _passed(schedule: Schedule, due_at: datetime, until: datetime) -> tuple[tuple[datetime, ...], int]:
    """Return the newest occurrences from `due_at` to `until`, and how many there are in all."""
    after = due_at - _MICRO
    return tuple(schedule.newest(until, MOST, after)), schedule.count(after, until)


def _missed(instant: datetime, now: datetime, missed_before: datetime | None) -> bool:
    """Say whether the newest due occurrence counts as missed rather than merely late."""
    return now - instant > GRACE or (missed_before is not None and instant <= missed_before)
