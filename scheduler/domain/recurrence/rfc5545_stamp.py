"""Parse RFC 5545 dates and times: 19970902, 19970902T090000, 19970902T130000Z."""

import re
from dataclasses import dataclass
from datetime import date
from enum import Enum

from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.zones import Clock

_STAMP = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z)?)?")
_CLOCK = (24, 60, 60)


class Fault(Exception):  # noqa: N818 - always caught within this package and turned into a Problem
    """An error in the text, with a message for the sender."""


class Form(Enum):
    """Kind of a stamp."""

    DATE = "date"
    WALL = "wall"
    UTC = "utc"


@dataclass(frozen=True, slots=True)
class Stamp:
    """A date (an ordinal), a wall time or an instant (seconds)."""

    form: Form
    value: int
    tzid: str | None = None


def read_stamp(name: str, text: str) -> Stamp:
    """Return the parsed date or time. Raises Fault."""
    match = _STAMP.fullmatch(text)
    if not match:
        raise Fault(f"{name} takes 20261231, 20261231T090000 or 20261231T090000Z, not {text[:40]}")
    try:
        day = date(int(match[1]), int(match[2]), int(match[3])).toordinal()
    except ValueError:
        raise Fault(f"{name}={text}: there is no such date") from None
    if match[4] is None:
        return Stamp(Form.DATE, day)
    clock = tuple(int(part) for part in match.group(4, 5, 6))
    if any(part >= limit for part, limit in zip(clock, _CLOCK, strict=True)):
        raise Fault(f"{name}={text}: there is no such time of day")
    second = clock[0] * 3600 + clock[1] * 60 + clock[2]
    return Stamp(Form.UTC if match[7] else Form.WALL, day * DAY + second)


def instant_of(stamp: Stamp, clock: Clock, time_of_day: int = 0) -> int:
    """Return the instant of a stamp, for a date at `time_of_day`."""
    if stamp.form is Form.UTC:
        return stamp.value
    return clock.to_utc(stamp.value * DAY + time_of_day if stamp.form is Form.DATE else stamp.value)
