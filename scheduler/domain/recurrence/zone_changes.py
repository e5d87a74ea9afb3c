"""Differences between two versions of the zone data that matter to schedules, over the next five years."""

from datetime import datetime, timedelta

from scheduler.domain.recurrence.schedule import to_seconds
from scheduler.domain.recurrence.zone_data import ZoneData
from scheduler.domain.recurrence.zones import Clock, clock_in

_FUTURE = timedelta(days=5 * 365 + 2)

Fingerprint = tuple[int, tuple[tuple[int, int], ...]]


def fingerprint(local: Clock, now: datetime) -> Fingerprint:
    """Return a zone's offset at `now`, and the time and the new offset of each change in the next five years."""
    first, last = to_seconds(now)[0], to_seconds(now + _FUTURE)[0]
    return local.offset(first), tuple((shift.at, shift.after) for shift in local.shifts(first, last))


def zone_changed(name: str, old: ZoneData, new: ZoneData, now: datetime) -> bool:
    """Return whether the fingerprints of a zone differ; false if one of the two lacks the zone."""
    if name not in old.names or name not in new.names or old.file(name) == new.file(name):
        return False
    return fingerprint(clock_in(old, name), now) != fingerprint(clock_in(new, name), now)
