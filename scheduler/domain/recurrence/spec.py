"""A schedule as it is stored, and how it becomes one that can be asked."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from scheduler.domain.recurrence.build import rule_walls
from scheduler.domain.recurrence.calendar import DAY, END_OF_TIME
from scheduler.domain.recurrence.cron import read_cron
from scheduler.domain.recurrence.schedule import Every, Once, Recurring, Schedule, to_seconds
from scheduler.domain.recurrence.stamp import Form, Stamp, instant_of
from scheduler.domain.recurrence.text import RuleText, read_text
from scheduler.domain.recurrence.timeline import AsShown, FirstPass, RightAfter
from scheduler.domain.recurrence.walls import Between, Walls, Without
from scheduler.domain.recurrence.zones import Clock, clock

_LAST_WALL = END_OF_TIME - 1
_ORIGIN = datetime(1, 1, 1)  # noqa: DTZ001 - wall time


@dataclass(frozen=True, slots=True)
class Spec:
    """A validated schedule as it is stored: columns of the jobs table."""

    rrule: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    dtstart: datetime | None  # DTSTART's wall time, naive: it may lie in a gap, where no instant could keep it
    starts_at: datetime  # UTC: nothing fires before it
    ends_at: datetime | None  # UTC: the rule's last instant by COUNT; RDATEs are not bounded by it

    @property
    def one_shot(self) -> bool:
        """Whether it fires once, at starts_at."""
        return self.rrule is None and self.cron is None and self.every is None


@lru_cache(maxsize=512)  # a hostile one may weigh a megabyte; a new one costs microseconds
def compile_schedule(spec: Spec) -> Schedule:
    """Return the schedule of a stored, trusted spec."""
    if spec.rrule is not None:
        return rule_schedule(spec, read_text(spec.rrule), clock(spec.timezone))
    if spec.cron is not None:
        cron = read_cron(spec.cron)
        timeline = RightAfter if cron.fixed else AsShown
        return Recurring(spec.starts_at, timeline(cron.walls, clock(spec.timezone)))
    if spec.every is not None:
        return Every(spec.starts_at, spec.every)
    return Once(spec.starts_at)


def wall_seconds(wall: datetime) -> int:
    """Return the whole seconds of a naive wall time on the scale of `calendar`."""
    since = wall - _ORIGIN
    return (since.days + 1) * DAY + since.seconds


def rule_schedule(spec: Spec, text: RuleText, local: Clock) -> Recurring:
    """Return the schedule of a rule whose text has been read."""
    if spec.dtstart is None:
        raise ValueError("a rule needs its DTSTART")
    start, micro = wall_seconds(spec.dtstart), spec.dtstart.microsecond
    walls: Walls = Between(rule_walls(text.rule, start), start, _last_wall(text.rule.until))
    days = frozenset(stamp.value for stamp in text.exdates if stamp.form is Form.DATE)
    if days:
        walls = Without(walls, days)
    excluded = frozenset(_instants(text.exdates, local, start, dates=False))
    until = _LAST_WALL
    if text.rule.until is not None and text.rule.until.form is Form.UTC:
        until = text.rule.until.value
    if spec.ends_at is not None:
        until = min(until, to_seconds(spec.ends_at)[0])
    added = set(_instants(text.rdates, local, start, dates=True)) - excluded
    if days:
        added = {instant for instant in added if (instant + local.offset(instant)) // DAY not in days}
    timeline = FirstPass(walls, local)
    return Recurring(spec.starts_at, timeline, micro, until, tuple(sorted(added)), excluded)


def _last_wall(until: Stamp | None) -> int:
    """Return the last wall time that a local UNTIL allows; a date includes that whole day."""
    if until is None or until.form is Form.UTC:
        return _LAST_WALL
    return until.value if until.form is Form.WALL else (until.value + 1) * DAY - 1


def _instants(stamps: tuple[Stamp, ...], local: Clock, start: int, *, dates: bool) -> list[int]:
    return [
        instant_of(stamp, clock(stamp.tzid) if stamp.tzid else local, start % DAY)
        for stamp in stamps
        if dates or stamp.form is not Form.DATE
    ]
