"""Compute occurrences: RFC 5545 rules, Debian cron and fixed intervals, exact and in constant time.

Pure: no clock, no environment, and no I/O except reading zone data.
"""

from scheduler.domain.recurrence.equality import same_schedule
from scheduler.domain.recurrence.resolve import RUN_NOW, plain_one_shot, resolve
from scheduler.domain.recurrence.resolve_fields import resolve_fields
from scheduler.domain.recurrence.schedule import Schedule
from scheduler.domain.recurrence.spec import Spec, StartSource, compile_schedule
from scheduler.domain.recurrence.zones import Clock, local_time, tzdata_version, zone, zone_names

__all__ = [
    "RUN_NOW", "Clock", "Schedule", "Spec", "StartSource", "compile_schedule", "local_time",
    "plain_one_shot", "resolve", "resolve_fields", "same_schedule", "tzdata_version", "zone", "zone_names",
]
