"""dateutil as the oracle: it expands wall times, and PEP 495 turns them into instants."""

from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import dateutil.rrule
from hypothesis import strategies as st
from recurrence_helpers import ZONES, wall_to_utc, zone_info

from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.schedule import to_instant
from scheduler.domain.recurrence.zones import clock

SPANS = {
    "YEARLY": timedelta(days=9000),
    "MONTHLY": timedelta(days=1500),
    "WEEKLY": timedelta(days=500),
    "DAILY": timedelta(days=200),
    "HOURLY": timedelta(days=12),
    "MINUTELY": timedelta(days=2),
    "SECONDLY": timedelta(hours=2),
}
MAX_WALLS = 200
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


class _EnoughError(Exception):
    """The rule has been expanded beyond what is compared."""


@contextmanager
def _until(end, freq):
    """Stop dateutil's search after `end`; for an unsatisfiable rule it would continue until the year 9999."""
    rebuild = dateutil.rrule._iterinfo.rebuild

    def bounded(info, year, month):
        if year > end.year or (freq != "YEARLY" and (year, month) > (end.year, end.month)):
            raise _EnoughError
        return rebuild(info, year, month)

    dateutil.rrule._iterinfo.rebuild = bounded
    try:
        yield
    finally:
        dateutil.rrule._iterinfo.rebuild = rebuild


def with_weekday(text, dtstart):
    """Write out the weekday that RFC 5545 takes from DTSTART, where dateutil would take the whole week."""
    if "BYWEEKNO=" not in text or any(part in text for part in ("BYDAY=", "BYMONTHDAY=", "BYYEARDAY=")):
        return text
    return f"{text};BYDAY={WEEKDAYS[dtstart.weekday()]}"


def expand(text, dtstart, zone, freq):
    """Return the distinct instants of a rule before a cut-off, and the cut-off."""
    text = with_weekday(text, dtstart)
    end = dtstart + SPANS[freq]
    walls = []
    # ValueError: "invalid combination of interval and other parameters", that is, it never fires
    with _until(end, freq), suppress(_EnoughError, ValueError):
        for wall in islice(dateutil.rrule.rrulestr(text, dtstart=dtstart), MAX_WALLS):
            if wall > end:
                break
            walls.append(wall)
    if len(walls) == MAX_WALLS:
        end = walls[-1]
    # A wall time inside a gap may be overtaken by one that the clock shows right after it.
    cut = min(end.replace(tzinfo=zone_info(zone), fold=fold).astimezone(UTC) for fold in (0, 1))
    return sorted({wall_to_utc(wall, zone) for wall in walls if wall_to_utc(wall, zone) < cut}), cut


@st.composite
def starts(draw, zone=None):
    """Draw a zone and a wall time, often within hours or days of a clock change."""
    zone = zone or draw(st.sampled_from(ZONES))
    wall = draw(st.datetimes(datetime(1996, 1, 1), datetime(2060, 1, 1))).replace(microsecond=0)  # noqa: DTZ001 - wall time
    if zone != "UTC" and draw(st.booleans()):
        year = draw(st.integers(1996, 2050))
        since = datetime(year, 1, 1).toordinal() * DAY  # noqa: DTZ001 - wall time
        shifts = list(clock(zone).shifts(since, since + 800 * DAY))
        if shifts:
            shift = draw(st.sampled_from(shifts))
            nearby = draw(st.integers(-3 * 3600, 3 * 3600) | st.integers(-4 * 48, 4 * 48).map(lambda n: n * 900))
            wall = to_instant(shift.at + shift.before + nearby).replace(tzinfo=None)
    if draw(st.booleans()):
        wall = wall.replace(minute=wall.minute // 15 * 15, second=0)
    return zone, wall


def _numbers(low, high, most=4, *, negative=False):
    number = st.integers(low, high)
    if negative:
        number |= st.integers(-high, -low)
    return st.lists(number, min_size=1, max_size=most, unique=True)


@st.composite
def rules(draw, weeks=None):
    """Draw (FREQ, the parts of a rule that dateutil and RFC 5545 agree about).

    With `weeks`, all rules have a BYWEEKNO, up to that number; dateutil mistakes 52 and 53 around New Year.
    """
    freq = "YEARLY" if weeks else draw(st.sampled_from(tuple(SPANS)))
    subdaily = freq in ("HOURLY", "MINUTELY", "SECONDLY")
    parts = {"FREQ": freq}

    def maybe(name, strategy, weight=4):
        if draw(st.integers(1, weight)) == 1:
            parts[name] = ",".join(str(item) for item in draw(strategy))

    if draw(st.booleans()):
        parts["INTERVAL"] = str(draw(st.integers(1, 4) | st.integers(1, 100)))
    maybe("BYMONTH", _numbers(1, 12), 8 if subdaily else 4)
    if freq != "WEEKLY":
        maybe("BYMONTHDAY", _numbers(1, 31, negative=True), 6)
    if freq == "YEARLY" or subdaily:
        maybe("BYYEARDAY", _numbers(1, 366, negative=True), 10)
    if freq == "YEARLY":
        maybe("BYWEEKNO", _numbers(1, weeks or 51, negative=True), 1 if weeks else 4)
    plain = st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=5, unique=True)
    if freq in ("YEARLY", "MONTHLY") and "BYWEEKNO" not in parts and draw(st.booleans()):
        most = 5 if freq == "MONTHLY" or "BYMONTH" in parts else 53
        nth = st.integers(1, most) | st.integers(-most, -1)
        items = st.tuples(nth, st.sampled_from(WEEKDAYS)).map(lambda item: f"{item[0]}{item[1]}")
        maybe("BYDAY", st.lists(items, min_size=1, max_size=3, unique=True), 2)
    else:
        maybe("BYDAY", plain, 3)
    maybe("BYHOUR", st.sampled_from(([0], [1, 2, 3], [2], [23, 0], [1, 2])) | _numbers(0, 23), 3)
    maybe("BYMINUTE", _numbers(0, 59), 4)
    maybe("BYSECOND", _numbers(0, 59), 5)
    if any(name.startswith("BY") for name in parts):
        # A second is a set of one: dateutil would look for its second member until the end of the month.
        most = 1 if freq == "SECONDLY" else 4
        maybe("BYSETPOS", _numbers(1, most, min(most, 3), negative=True), 4)
    if draw(st.booleans()):
        parts["WKST"] = draw(st.sampled_from(WEEKDAYS))
    return freq, ";".join(f"{name}={value}" for name, value in parts.items())
