"""Shared cases and helpers of the recurrence tests."""

import json
import os
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings

from scheduler.domain.recurrence import Schedule, compile_schedule, resolve
from scheduler.domain.recurrence import zone as zone_info  # from tzdata: the system may carry another release

CASES = Path(__file__).parents[3] / "recurrence_cases"
EXAMPLES = int(os.environ.get("SCHEDULER_TEST_EXAMPLES", "100"))
STORED_AT = datetime(2026, 9, 14, 13, 0, tzinfo=UTC)

DEEP = EXAMPLES >= 1000


def steady(test):
    """Run a property with the same examples each time; with thousands of them it belongs to the deep run."""
    # Noisy machines: no deadline.
    test = settings(max_examples=EXAMPLES, deadline=None, derandomize=not DEEP, database=None)(test)
    return pytest.mark.deep(test) if DEEP else test


ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Riga",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "America/Santiago",
    "America/Asuncion",
    "America/Havana",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Beirut",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Atlantic/Azores",
    "Antarctica/Troll",
)


def cases(name):
    """Return the stored cases of one file."""
    with (CASES / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def spec_of(*, stored_at=STORED_AT, **fields):
    """Resolve the given fields; the others are absent."""
    given = dict.fromkeys(("run_at", "rrule", "cron", "every", "timezone")) | fields
    return resolve(**given, stored_at=stored_at)


def schedule_of(**fields) -> Schedule:
    """Compile the given fields."""
    return compile_schedule(spec_of(**fields))


def take(schedule, number, after=None):
    """Return the first occurrences, or those after an instant."""
    first = schedule.first() if after is None else schedule.next_after(after)
    return [] if first is None else [first, *islice(schedule.after(first), number - 1)]


def wall_to_utc(wall, zone):
    """Convert as the contract says, from PEP 495's rules alone: first pass, and the offset before a gap."""
    return wall.replace(tzinfo=zone_info(zone), fold=0).astimezone(UTC)


def utc(text):
    """Read an ISO 8601 text as an instant."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
