"""A schedule as it is stored, and how it becomes one that can be asked."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from scheduler.domain.recurrence.build_walls import rule_walls
from scheduler.domain.recurrence.cron import read_cron
from scheduler.domain.recurrence.day_masks import DAY, END_OF_TIME
from scheduler.domain.recurrence.rfc5545_stamp import Form, Stamp, instant_of
from scheduler.domain.recurrence.rrule_text import RuleText, read_text
from scheduler.domain.recurrence.rule import Rule
from scheduler.domain.recurrence.schedule import Every, Once, Recurring, Schedule, to_seconds
from scheduler.domain.recurrence.timeline import AsShown, FirstPass, RightAfter, Timeline
from scheduler.domain.recurrence.wall_times import Between, Walls, Without
from scheduler.domain.recurrence.zones import Clock, clock

_LAST_WALL = END_OF_TIME - 1
_ORIGIN = datetime(1, 1, 1)  # noqa: DTZ001 - wall time


class StartSource(StrEnum):
    """Where the start of a recurring schedule comes from."""

    RUN_AT = "run_at"  # the request gave it, as `run_at` or as a DTSTART line
    STORED = "stored"  # the request was stored then


@dataclass(slots=True)  # not frozen, for speed: one is made of each row that is due
class Spec:
    """A validated schedule as it is stored: columns of the jobs table."""

    rrule: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    dtstart: datetime | None  # DTSTART's wall time, naive: it may lie in a gap, where no instant could keep it
    starts_at: datetime  # UTC: nothing fires before it
    ends_at: datetime | None  # UTC: the rule's last instant by COUNT; RDATEs are not bounded by it
    start_source: str | None = None  # a StartSource; None for a one-shot, or if release 0.2 stored it

    @property
    def one_shot(self) -> bool:
        """Whether it fires once, at starts_at."""
        return self.rrule is None and self.cron is None and self.every is None


def compile_schedule(spec: Spec) -> Schedule:
    """Return the schedule of a stored, trusted spec."""
    if spec.rrule is not None:
        return rule_schedule(spec, cached_text(spec.rrule, spec.timezone))
    if spec.cron is not None:
        return Recurring(spec.starts_at, _known_cron(spec.cron, spec.timezone))
    if spec.every is not None:
        return Every(spec.starts_at, spec.every)
    return Once(spec.starts_at)


# Jobs have few texts and many starts: what a text means in a zone is remembered, what a start makes of it is not.
@lru_cache(maxsize=1024)  # a text of 4,096 characters may weigh 50 kB
def cached_text(rrule: str, timezone: str) -> "LocalText":
    """Return what a stored text means in a zone."""
    return local_text(read_text(rrule), clock(timezone))


@lru_cache(maxsize=1024)  # a few kB each
def _known_cron(cron: str, timezone: str) -> Timeline:
    read = read_cron(cron)
    return (RightAfter if read.fixed else AsShown)(read.walls, clock(timezone))


def wall_seconds(wall: datetime) -> int:
    """Return the whole seconds of a naive wall time on the scale of `calendar`."""
    since = wall - _ORIGIN
    return (since.days + 1) * DAY + since.seconds


@dataclass(slots=True)
class LocalText:
    """What the text of a rule means in a zone, whatever its DTSTART."""

    rule: Rule
    clock: Clock
    last_wall: int  # by a local UNTIL
    until: int  # by an UNTIL in UTC
    rdates: tuple[Stamp, ...]
    excluded: frozenset[int] = frozenset()
    excluded_days: frozenset[int] = frozenset()


def local_text(text: RuleText, local: Clock) -> LocalText:
    """Return what `text` means in a zone."""
    rule, until = text.rule, text.rule.until
    last_wall = _last_wall(until)
    last = until.value if until is not None and until.form is Form.UTC else _LAST_WALL
    if not text.exdates:
        return LocalText(rule, local, last_wall, last, text.rdates)
    instants = frozenset(_instant(stamp, local) for stamp in text.exdates if stamp.form is not Form.DATE)
    days = frozenset(stamp.value for stamp in text.exdates if stamp.form is Form.DATE)
    return LocalText(rule, local, last_wall, last, text.rdates, instants, days)


def rule_schedule(spec: Spec, text: LocalText) -> Recurring:
    """Return the schedule of a rule whose text has been read."""
    if spec.dtstart is None:
        raise ValueError("a rule needs its DTSTART")
    start, until = wall_seconds(spec.dtstart), text.until
    walls: Walls = Between(rule_walls(text.rule, start), start, text.last_wall)
    if text.excluded_days:
        walls = Without(walls, text.excluded_days)
    if spec.ends_at is not None:
        until = min(until, to_seconds(spec.ends_at)[0])
    added = _added(text, start % DAY) if text.rdates else ()
    timeline = FirstPass(walls, text.clock)
    return Recurring(spec.starts_at, timeline, spec.dtstart.microsecond, until, added, text.excluded)


def _added(text: LocalText, time_of_day: int) -> tuple[int, ...]:
    """Return the instants that RDATEs add, in order, without those that EXDATEs take away."""
    local, days = text.clock, text.excluded_days
    added = {_instant(stamp, local, time_of_day) for stamp in text.rdates} - text.excluded
    return tuple(sorted(one for one in added if not days or (one + local.offset(one)) // DAY not in days))


def _last_wall(until: Stamp | None) -> int:
    """Return the last wall time that a local UNTIL allows; a date includes that whole day."""
    if until is None or until.form is Form.UTC:
        return _LAST_WALL
    return until.value if until.form is Form.WALL else (until.value + 1) * DAY - 1


def _instant(stamp: Stamp, local: Clock, time_of_day: int = 0) -> int:
    return instant_of(stamp, clock(stamp.tzid) if stamp.tzid else local, time_of_day)
