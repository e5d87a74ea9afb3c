"""Build the wall times that a rule with its DTSTART matches."""

from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Any

from scheduler.domain.recurrence.day_masks import DAY, WEEK
from scheduler.domain.recurrence.periods import Positions, RuleDays, aligned_days
from scheduler.domain.recurrence.rule import Freq, Rule
from scheduler.domain.recurrence.subdaily import Steps
from scheduler.domain.recurrence.times_of_day import ListedTimes, OneTime, Times, clock_times, pick
from scheduler.domain.recurrence.wall_times import DaysAndTimes, Walls

_UNITS = (0, 0, 0, 0, 3600, 60, 1)  # seconds, by Freq
_SIXTY = tuple(range(60))


class NothingChosen(Exception):  # noqa: N818 - resolve turns it into a Problem
    """BYSETPOS selects positions that no period of the rule has."""


def rule_walls(rule: Rule, start: int) -> Walls:
    """Return the wall times of a rule with DTSTART `start`, including earlier ones."""
    day, second = divmod(start, DAY)
    if rule.freq > Freq.DAILY:
        return _steps(rule, start, second)
    whole = _shared_days(rule, **from_start(rule, day))
    days = aligned_days(whole, rule, day)
    times = _times(rule, second)
    if not rule.bysetpos:
        return DaysAndTimes(days, times)
    if rule.freq != Freq.DAILY:
        return Positions(days, times, rule, date.fromordinal(day), whole)
    chosen = tuple(times.at(index) for index in pick(rule.bysetpos, times.size))
    if not chosen:
        raise NothingChosen
    return DaysAndTimes(days, ListedTimes(chosen))


def _times(rule: Rule, second: int) -> Times:
    """Return the times of day of a rule; missing parts come from DTSTART."""
    if not (rule.byhour or rule.byminute or rule.bysecond):
        return OneTime(second)
    hours, minutes = rule.byhour or (second // 3600,), rule.byminute or (second // 60 % 60,)
    return clock_times(hours, minutes, rule.bysecond or (second % 60,))


def from_start(rule: Rule, day: int) -> dict[str, Any]:
    """Return the date parts that a rule omits, taken from DTSTART's `day`."""
    if rule.freq >= Freq.DAILY or rule.byyearday or rule.bymonthday or rule.byday:
        return {}
    if rule.freq == Freq.WEEKLY or rule.byweekno:
        return {"byday": ((0, (day - 1) % WEEK),)}
    anchor = date.fromordinal(day)
    if rule.freq == Freq.MONTHLY:
        return {"bymonthday": (anchor.day,)}
    return {"bymonth": rule.bymonth or (anchor.month,), "bymonthday": (anchor.day,)}


@lru_cache(maxsize=8192)  # 2 to 5 kB each
def _shared_days(rule: Rule, **parts: Any) -> RuleDays:
    """Return the days of a rule, shared by all jobs with the same rule."""
    return RuleDays(replace(rule, **parts) if parts else rule)


def _steps(rule: Rule, start: int, second: int) -> Steps:
    unit = _UNITS[rule.freq]
    if rule.freq == Freq.HOURLY:
        minutes, seconds = rule.byminute or (second // 60 % 60,), rule.bysecond or (second % 60,)
        offsets = tuple(minute * 60 + second for minute in minutes for second in seconds)
    else:
        offsets = (rule.bysecond or (second % 60,)) if rule.freq == Freq.MINUTELY else (0,)
    if rule.bysetpos:
        offsets = tuple(offsets[index] for index in pick(rule.bysetpos, len(offsets)))
        if not offsets:
            raise NothingChosen
    every_month, every_weekday = len(rule.bymonth) in (0, 12), len(rule.byday) in (0, WEEK)
    every_day = every_month and every_weekday and not (rule.byyearday or rule.bymonthday)
    return Steps(
        _shared_days(rule), every_day, unit, rule.interval, start // unit, _allowed(rule), offsets, rule.byday
    )


@lru_cache(maxsize=128)  # up to 86 kB each
def _allowed(rule: Rule) -> bytes | None:
    """Return one byte per unit of the day: 1 if the BY parts allow it; None if they allow all."""
    hours, minutes, seconds = (
        rule.byhour or tuple(range(24)),
        rule.byminute or _SIXTY,
        rule.bysecond or _SIXTY,
    )
    if rule.freq == Freq.HOURLY:
        return _flags(hours, 24, b"\x01") if rule.byhour else None
    if rule.freq == Freq.MINUTELY:
        return _flags(hours, 24, _flags(minutes, 60, b"\x01")) if rule.byhour or rule.byminute else None
    if not (rule.byhour or rule.byminute or rule.bysecond):
        return None
    return _flags(hours, 24, _flags(minutes, 60, _flags(seconds, 60, b"\x01")))


def _flags(chosen: tuple[int, ...], size: int, pattern: bytes) -> bytes:
    empty = bytes(len(pattern))
    return b"".join(pattern if index in chosen else empty for index in range(size))
