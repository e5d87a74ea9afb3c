"""Compute occurrences: RFC 5545 rules, Debian cron and fixed intervals, exact and in constant time.

Pure: no clock, no environment, and no I/O except reading zone data from the `tzdata` package.
"""

from scheduler.domain.recurrence.equality import same_schedule
from scheduler.domain.recurrence.resolve import resolve
from scheduler.domain.recurrence.schedule import Schedule
from scheduler.domain.recurrence.spec import Spec, StartSource, compile_schedule
from scheduler.domain.recurrence.zones import local_time, tzdata_version, zone, zone_names

__all__ = [
    "Schedule", "Spec", "StartSource", "compile_schedule", "local_time", "resolve", "same_schedule",
    "tzdata_version", "zone", "zone_names",
]
