"""A slow reference for calendars and windows, day by day, with datetime and zoneinfo.

It is written from the contract alone and shares no code with the engine but the zone files.
"""

# ruff: noqa: DTZ001, DTZ007 - wall times

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import dateutil.rrule
from recurrence_helpers import zone_info

ONE_DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def local(instant, zone):
    """Return the wall time that a zone's clocks show."""
    return instant.astimezone(zone_info(zone)).replace(tzinfo=None, fold=0)


def by_rule(wall, zone):
    """Resolve a wall time: the offset before a gap, the first pass of a fold."""
    return wall.replace(tzinfo=zone_info(zone), fold=0).astimezone(UTC)


def right_after_gap(wall, zone):
    """Resolve a wall time, but let a skipped one happen at the first instant after the gap."""
    instant = by_rule(wall, zone)
    if local(instant, zone) == wall:
        return instant
    offset = instant.astimezone(zone_info(zone)).utcoffset()
    while (instant - MINUTE).astimezone(zone_info(zone)).utcoffset() == offset:
        instant -= MINUTE
    return instant.replace(second=0, microsecond=0)


def from_walls(walls, zone, resolve):
    """Return {instant: named wall time}; if two wall times share an instant, the one that the clocks show."""
    named = {}
    for wall in walls:
        instant = resolve(wall, zone)
        if instant not in named or local(instant, zone) == wall:
            named[instant] = wall
    return named


def rule_occurrences(text, dtstart, zone, end):
    """Return {instant: named wall time} of a rule without COUNT; `dtstart` is naive."""
    rule = dateutil.rrule.rrulestr(text, dtstart=dtstart)
    return from_walls(rule.between(dtstart, end, inc=True), zone, by_rule)


def fixed_cron_occurrences(times, weekdays, start, zone, end):
    """Return {instant: named wall time} of a cron expression with fixed times, from a UTC instant on."""
    day, walls = local(start, zone).date() - 2 * ONE_DAY, []
    while day <= end.date():
        if day.weekday() in weekdays:
            walls.extend(datetime(day.year, day.month, day.day, *time) for time in times)
        day += ONE_DAY
    named = from_walls(walls, zone, right_after_gap)
    return {instant: wall for instant, wall in named.items() if instant >= start}


def shown_cron_occurrences(minutes, start, zone, end):
    """Return {instant: named wall time} of `M * * * *`, from a UTC instant on."""
    named, instant = {}, start
    while (wall := local(instant, zone)) < end:
        if wall.minute in minutes:
            named[instant] = wall
        instant += 15 * MINUTE  # zones change by quarters of an hour
    return named


def every_occurrences(spacing, start, zone, end):
    """Return {instant: named wall time} of a fixed spacing."""
    named, instant = {}, start
    while (wall := local(instant, zone)) < end:
        named[instant] = wall
        instant += spacing
    return named


def is_open(day, calendar):
    """Return whether a date is open."""
    if calendar is None:
        return True
    key, listed = day.isoformat(), day.isoformat() <= (calendar.get("valid_until") or "9999-12-31")
    if listed and key in calendar.get("open", {}):
        return True
    return not (listed and key in calendar.get("closed", {})) and (
        WEEKDAYS[day.weekday()] not in calendar.get("weekend", [])
    )


def moved_date(day, calendar, policy):
    """Return the date to which an occurrence moves, or None."""
    if is_open(day, calendar):
        return day
    after = next((day + k * ONE_DAY for k in range(1, 32) if is_open(day + k * ONE_DAY, calendar)), None)
    before = next((day - k * ONE_DAY for k in range(1, 32) if is_open(day - k * ONE_DAY, calendar)), None)
    if policy == "skip":
        return None
    if policy == "next":
        return after
    if policy == "previous":
        return before
    if policy == "nearest":
        if after is None or before is None:
            return after or before
        return after if after - day < day - before else before
    month = [day.replace(day=1) + k * ONE_DAY for k in range(31)]
    same = [each for each in month if each.month == day.month and is_open(each, calendar)]
    later = [each for each in same if each > day]
    earlier = [each for each in same if each < day]
    return later[0] if later else earlier[-1] if earlier else None


@lru_cache(maxsize=10_000)
def window_span(day, opens, closes, days, zone):
    """Return the opening and closing times of the window on a date, or None."""
    if WEEKDAYS[day.weekday()] not in days:
        return None
    opens, closes = (datetime.strptime(text, "%H:%M").time() for text in (opens, closes))
    last = day if closes > opens else day + ONE_DAY
    start, end = by_rule(datetime.combine(day, opens), zone), by_rule(datetime.combine(last, closes), zone)
    return (start, end) if start < end else None


def in_window(instant, window, calendar, zone):
    """Return the instant to which a window moves an occurrence, or None."""
    today = local(instant, zone).date()
    parts = (window["from"], window["to"], tuple(window.get("days", WEEKDAYS)), zone)
    spans = {k: window_span(today + k * ONE_DAY, *parts) for k in range(-3, 32)}
    if any(span and span[0] <= instant < span[1] for span in spans.values()):
        return instant
    openings = [
        span[0] for k, span in spans.items()
        if span and span[0] > instant and is_open(today + k * ONE_DAY, calendar)
    ]
    return min(openings, default=None)


def plan(named, zone, *, calendar=None, policy="skip", window=None, resolve=by_rule):
    """Return [(nominal, planned, [merged …])] in order, and the skipped nominal instants."""
    groups, skipped = {}, []
    for nominal, wall in sorted(named.items()):
        target = moved_date(wall.date(), calendar, policy)
        if target is None:
            skipped.append(nominal)
            continue
        moved = nominal if target == wall.date() else resolve(datetime.combine(target, wall.time()), zone)
        planned = moved if window is None else in_window(moved, window, calendar, zone)
        if planned is None:
            skipped.append(nominal)
        else:
            groups.setdefault(planned, []).append(nominal)
    rows = []
    for planned, nominals in sorted(groups.items()):
        emitted = planned if planned in nominals else min(nominals)
        rows.append((emitted, planned, sorted(set(nominals) - {emitted})))
    return rows, skipped


def dates(first, days):
    """Return dates from `first` plus each number of days, as strings."""
    return {(date.fromordinal(first.toordinal() + day)).isoformat(): f"closed {day}" for day in days}
