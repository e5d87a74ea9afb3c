"""Stored schedules, and their compilation."""

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
from scheduler.domain.recurrence.schedule import Every, Never, Once, Recurring, Schedule, to_seconds
from scheduler.domain.recurrence.timeline import AsShown, FirstPass, RightAfter, Timeline
from scheduler.domain.recurrence.wall_times import Between, Walls, Without
from scheduler.domain.recurrence.zones import Clock, clock

_LAST_WALL = END_OF_TIME - 1
_ORIGIN = datetime(1, 1, 1)  # noqa: DTZ001 - wall time


class StartSource(StrEnum):
    """Source of a schedule's start; a one-shot with a given instant has none."""

    RUN_AT = "run_at"  # the request gave it, as `run_at` or as a DTSTART line
    STORED = "stored"  # the time of storing
    NOW = "now"  # the request's `run_at` is `now`: the time of storing, also of a one-shot
    MANUAL = "manual"  # none: the job has no schedule


_MANUAL = StartSource.MANUAL.value


@dataclass(slots=True)  # not frozen, for speed: one is created per due row
class Spec:
    """A validated schedule; each field is a column of the jobs table."""

    rrule: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    dtstart: datetime | None  # DTSTART's wall time, naive, because it may be in a gap
    starts_at: datetime  # UTC; the first possible occurrence
    ends_at: datetime | None  # UTC; the rule's last instant by COUNT; does not limit RDATEs
    start_source: str | None = None  # a StartSource; None for a one-shot, or if release 0.2 stored it
    calendar: str | None = None
    on_closed: str | None = None  # an OnClosed if there is a calendar
    sending_window: str | None = None  # such as 09:00-18:00,MO,TU
    jitter: timedelta | None = None

    @property
    def adjusted(self) -> bool:
        """Whether it has a calendar, a window or jitter."""
        return self.calendar is not None or self.sending_window is not None or self.jitter is not None

    @property
    def one_shot(self) -> bool:
        """Whether it fires once, at starts_at."""
        return (
            self.rrule is None and self.cron is None and self.every is None
            and (self.start_source is None or self.start_source != _MANUAL)
        )

    @property
    def manual(self) -> bool:
        """Whether it never fires: the job runs only when it is triggered."""
        return self.start_source is not None and self.start_source == _MANUAL

    @property
    def follows_clock(self) -> bool:
        """Whether new rules of its time zone change its instants."""
        return self.timezone != "UTC" and (
            self.rrule is not None or self.cron is not None or self.dtstart is not None
            or self.calendar is not None or self.sending_window is not None
        )


def compile_schedule(spec: Spec, local: Clock | None = None) -> Schedule:
    """Return the schedule of a stored, trusted spec, by other zone data if its clock is given."""
    if local is not None:
        return _compile_in(spec, local)
    if spec.rrule is not None:
        return rule_schedule(spec, cached_text(spec.rrule, spec.timezone))
    if spec.cron is not None:
        return Recurring(spec.starts_at, _cached_cron(spec.cron, spec.timezone))
    if spec.every is not None:
        return Every(spec.starts_at, spec.every)
    return Never() if spec.manual else Once(spec.starts_at)


def _compile_in(spec: Spec, local: Clock) -> Schedule:
    if spec.rrule is not None:
        return rule_schedule(spec, _text_in(spec.rrule, local))
    if spec.cron is not None:
        return Recurring(spec.starts_at, _cron_in(spec.cron, local))
    return compile_schedule(spec)


# Jobs have few rules and many starts: cache the parsed rule per zone, not per start.
@lru_cache(maxsize=1024)  # up to 50 kB each
def cached_text(rrule: str, timezone: str) -> "LocalText":
    """Return a stored rule in a zone."""
    return local_text(read_text(rrule), clock(timezone))


@lru_cache(maxsize=1024)  # a few kB each
def _cached_cron(cron: str, timezone: str) -> Timeline:
    return _cron_in(cron, clock(timezone))


@lru_cache(maxsize=256)  # of other zone data; as above
def _text_in(rrule: str, local: Clock) -> "LocalText":
    return local_text(read_text(rrule), local)


@lru_cache(maxsize=256)
def _cron_in(cron: str, local: Clock) -> Timeline:
    read = read_cron(cron)
    return (RightAfter if read.fixed else AsShown)(read.walls, local)


def wall_seconds(wall: datetime) -> int:
    """Return the whole seconds of a naive wall time since ordinal 0."""
    since = wall - _ORIGIN
    return (since.days + 1) * DAY + since.seconds


@dataclass(slots=True)
class LocalText:
    """A rule in a zone, without its DTSTART."""

    rule: Rule
    clock: Clock
    last_wall: int  # from a local UNTIL
    until: int  # from an UNTIL in UTC
    rdates: tuple[Stamp, ...]
    excluded: frozenset[int] = frozenset()
    excluded_days: frozenset[int] = frozenset()


def local_text(text: RuleText, local: Clock) -> LocalText:
    """Return a parsed rule in a zone."""
    rule, until = text.rule, text.rule.until
    last_wall = _last_wall(until)
    last = until.value if until is not None and until.form is Form.UTC else _LAST_WALL
    if not text.exdates:
        return LocalText(rule, local, last_wall, last, text.rdates)
    instants = frozenset(_instant(stamp, local) for stamp in text.exdates if stamp.form is not Form.DATE)
    days = frozenset(stamp.value for stamp in text.exdates if stamp.form is Form.DATE)
    return LocalText(rule, local, last_wall, last, text.rdates, instants, days)


def rule_schedule(spec: Spec, text: LocalText) -> Recurring:
    """Return the schedule of a parsed rule."""
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
    """Return the sorted instants of RDATEs without the excluded ones."""
    local, days = text.clock, text.excluded_days
    added = {_instant(stamp, local, time_of_day) for stamp in text.rdates} - text.excluded
    return tuple(sorted(at for at in added if not days or (at + local.offset(at)) // DAY not in days))


def _last_wall(until: Stamp | None) -> int:
    """Return the last wall time that a local UNTIL allows; a date includes that whole day."""
    if until is None or until.form is Form.UTC:
        return _LAST_WALL
    return until.value if until.form is Form.WALL else (until.value + 1) * DAY - 1


def _instant(stamp: Stamp, local: Clock, time_of_day: int = 0) -> int:
    return instant_of(stamp, clock(stamp.tzid) if stamp.tzid else local, time_of_day)
