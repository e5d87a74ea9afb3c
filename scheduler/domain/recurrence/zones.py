"""Time zones and their clocks, from one set of zone data for the whole process."""

import difflib
import io
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import TypeAlias
from zoneinfo import ZoneInfo

from scheduler.domain.recurrence import zone_data
from scheduler.domain.recurrence.day_masks import (
    DAY,
    END_OF_TIME,
    LAST_YEAR,
    january_first,
    year_kind,
    year_length,
)
from scheduler.domain.recurrence.zone_data import ZoneData

_ZERO = datetime(1, 1, 1)  # noqa: DTZ001 - the origin of wall time, which has no zone
_REGULAR_FROM = 2100  # every zone follows its yearly rule by then
_UNIX = 719_163 * DAY  # 1970 since ordinal 0
_TZIF_COUNTS = struct.Struct(">6I")
_TZIF_COUNTS_AT = 20
_TZIF_HEADER = 44
_FIRST_SHIFTS = 1800  # before it, all places have local mean time; the first change is Manila's in 1844
_STRIDE = 6 * DAY  # the closest two changes: Boa Vista in October 2000, seven days less an hour apart
NEARBY = 2 * DAY  # longer than any shift; Samoa skipped a whole day
_NEAR_YEARS = 64  # years with cached segments, per zone
_MAX_ALIKE = 60  # names with the same three letters
_MAX_COMPARED = 4  # names compared with an unknown one
_FIRST, _LAST = 3 * DAY, END_OF_TIME - 3 * DAY  # conversions stay within the years 1 to 9999


def tzdata_version() -> str:
    """Return the IANA release of the zone data, such as 2026a."""
    return zone_data.current().version


def zone_names() -> frozenset[str]:
    """Return the valid values of `timezone`."""
    return zone_data.current().names


@cache
def _lower_names(data: ZoneData) -> dict[str, str]:
    return {name.lower(): name for name in data.names}


def suggest(name: str) -> str | None:
    """Return a similar zone name, if there is one."""
    lower_name = name[:64].lower().replace(" ", "_")
    shared: Counter[str] = Counter()
    data = zone_data.current()
    parts = _names_by_part(data)
    for part in _parts(lower_name):
        shared.update(parts.get(part, ()))
    likely = [zone for zone, _ in shared.most_common(_MAX_COMPARED)]
    close = difflib.get_close_matches(lower_name, likely, n=1, cutoff=0.75)
    return _lower_names(data)[close[0]] if close else None


def unknown_zone(name: str) -> str:
    """Return the problem of an unknown zone name."""
    near = suggest(name)
    hint = f"did you mean {near}?" if near else "write an IANA name such as Europe/Berlin or UTC"
    return f"{name[:64]!r} is not the name of a time zone: {hint}"


@cache
def _names_by_part(data: ZoneData) -> dict[str, tuple[str, ...]]:
    """Return zone names by three-letter part, without parts that are too common."""
    names_by_part: dict[str, list[str]] = {}
    for name in sorted(_lower_names(data)):
        for part in _parts(name):
            names_by_part.setdefault(part, []).append(name)
    return {part: tuple(names) for part, names in names_by_part.items() if len(names) <= _MAX_ALIKE}


def _parts(name: str) -> set[str]:
    return {name[at : at + 3] for at in range(len(name) - 2)}


# Start and end of a span without clock changes, its offset, and the instant from which wall times are unambiguous:
# neither skipped just before nor repeated.
Segment: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Shift:
    """A clock change at the instant `at`, from one offset to another."""

    at: int
    before: int
    after: int

    @property
    def gap(self) -> bool:
        """Return whether wall times are skipped rather than repeated."""
        return self.after > self.before

    @property
    def size(self) -> int:
        """Return the number of skipped or repeated seconds."""
        return abs(self.after - self.before)


class Clock:
    """One zone's offsets, in whole seconds since ordinal 0."""

    __slots__ = ("_changes", "_info", "_near", "_recent", "_regular_from", "_years", "fixed", "name")

    def __init__(self, name: str, info: ZoneInfo, changes: tuple[int, ...] = ()) -> None:
        """Use zoneinfo's offsets and the changes listed in the zone's file, if any."""
        self.name = name
        self._info = info
        self._changes = changes
        self._regular_from = _year_at(changes[-1]) + 1 if changes else _REGULAR_FROM
        self.fixed: int | None = None
        self._years: dict[int, tuple[int, tuple[Shift, ...]]] = {}  # the year of the shifts, and the shifts
        self._near: dict[int, tuple[Segment, ...]] = {}
        self._recent: tuple[Segment, Segment] = ((0, 0, 0, 0), (0, 0, 0, 0))
        always = info.utcoffset(None)  # not None only if the clocks never change
        if always is not None:
            self.fixed = always.days * DAY + always.seconds
            self._recent = ((0, END_OF_TIME, self.fixed, 0), (0, 0, 0, 0))

    def offset(self, instant: int) -> int:
        """Return local minus UTC at `instant`."""
        return self.segment(instant)[2]

    def segment(self, instant: int) -> Segment:
        """Return the span around `instant` without clock changes.

        A span longer than a year may be truncated, but not within a year of `instant`.
        """
        recent, other = self._recent
        if recent[0] <= instant < recent[1]:
            return recent
        if other[0] <= instant < other[1]:
            return other
        if self.fixed is not None:
            return 0, END_OF_TIME, self.fixed, 0
        for segment in self._around(_year_at(instant)):
            if instant < segment[1]:
                # A search queries its start and its end, and the next search the same two.
                self._recent = segment, recent
                return segment
        raise AssertionError("the segments cover the whole year")

    def _around(self, year: int) -> tuple[Segment, ...]:
        """Return the segments of a year and its two neighbours."""
        segments = self._near.get(year)
        if segments is None:
            shifts = [shift for near in (year - 1, year, year + 1) for shift in self._year(near)]
            first, end = january_first(year - 1) * DAY, january_first(year + 2) * DAY
            edges = [first, *(shift.at for shift in shifts), end]
            offsets = [self._look_up(first), *(shift.after for shift in shifts)]
            settled = [first + NEARBY, *(shift.at + shift.size for shift in shifts)]
            if len(self._near) >= _NEAR_YEARS:
                self._near.clear()
            segments = self._near[year] = tuple(zip(edges, edges[1:], offsets, settled, strict=False))
        return segments

    def _look_up(self, instant: int) -> int:
        """Return zoneinfo's offset at `instant`."""
        moment = (_ZERO + timedelta(seconds=min(max(instant, _FIRST), _LAST) - DAY)).replace(tzinfo=self._info)
        offset = self._info.fromutc(moment).utcoffset() or timedelta()
        return offset.days * DAY + offset.seconds

    def offsets_of_wall(self, wall: int) -> tuple[int, int]:
        """Return the offsets before and after the shift around `wall`; the same offset twice without one."""
        start, end, offset, _ = self.segment(wall)
        if start + NEARBY <= wall < end - NEARBY:
            return offset, offset
        moment = (_ZERO + timedelta(seconds=min(max(wall, _FIRST), _LAST) - DAY)).replace(tzinfo=self._info)
        first = self._info.utcoffset(moment) or timedelta()
        second = self._info.utcoffset(moment.replace(fold=1)) or timedelta()
        return first.days * DAY + first.seconds, second.days * DAY + second.seconds

    def to_utc(self, wall: int) -> int:
        """Return the instant of a wall time: its first pass, or in a gap by the offset before it."""
        return wall - self.offsets_of_wall(wall)[0]

    def gap_around(self, wall: int) -> Shift | None:
        """Return the gap that contains `wall`, if any."""
        before, after = self.offsets_of_wall(wall)
        if after <= before:
            return None
        return self.shift(wall - before - NEARBY, wall - before)

    def shift(self, after: int, until: int) -> Shift | None:
        """Return the first shift with `after` < at <= `until`, for spans of less than a year."""
        return next(self.shifts(after, until), None)

    def shifts(self, after: int, until: int) -> Iterator[Shift]:
        """Yield every shift with `after` < at <= `until`, in order."""
        if self.fixed is not None or until <= after:
            return
        for year in range(_year_at(after), _year_at(until) + 1):
            for shift in self._year(year):
                if after < shift.at <= until:
                    yield shift

    def _year(self, year: int) -> tuple[Shift, ...]:
        """Return the shifts of one UTC year."""
        if not _FIRST_SHIFTS <= year <= LAST_YEAR:
            return ()
        # Once a zone follows its yearly rule, years of the same kind have the same shifts relative to 1 January.
        # Except the last year, whose end cannot be queried.
        regular = self._regular_from <= year < LAST_YEAR
        key = -1 - year_kind(year)[0] * 2 - year_length(year) % 2 if regular else year
        same, shifts = self._years.get(key, (year, None))
        if shifts is None and year < self._regular_from - 1 and self._changes:
            shifts = self._listed(january_first(year) * DAY, january_first(year + 1) * DAY)
            self._years[key] = year, shifts
        if shifts is None:
            start, end = january_first(year) * DAY, january_first(year + 1) * DAY
            edges = [*range(start - 1, end - 1, _STRIDE), end - 1]
            offsets = [self._look_up(edge) for edge in edges]
            shifts = tuple(
                shift
                for (low, high), (before, after) in zip(pairwise(edges), pairwise(offsets), strict=True)
                if before != after
                for shift in self._scan(low, high)
            )
            self._years[key] = year, shifts
        if same == year:
            return shifts
        later = (january_first(year) - january_first(same)) * DAY
        return tuple(Shift(shift.at + later, shift.before, shift.after) for shift in shifts)

    def _listed(self, start: int, end: int) -> tuple[Shift, ...]:
        """Return the shifts from `start` up to `end`, exclusive, if the zone's file lists all of them."""
        changes = self._changes[bisect_left(self._changes, start) : bisect_left(self._changes, end)]
        shifts = (Shift(at, self._look_up(at - 1), self._look_up(at)) for at in changes)
        return tuple(shift for shift in shifts if shift.before != shift.after)

    def _scan(self, after: int, until: int) -> Iterator[Shift]:
        """Find shifts between two instants by bisection."""
        while (before := self._look_up(after)) != self._look_up(until):
            low, high = after, until
            while high - low > 1:
                middle = (low + high) // 2
                if self._look_up(middle) == before:
                    low = middle
                else:
                    high = middle
            yield Shift(high, before, self._look_up(high))
            after = high


def _year_at(instant: int) -> int:
    clamped = min(max(instant, _FIRST), _LAST)
    return (_ZERO + timedelta(seconds=clamped - DAY)).year


def zone(name: str) -> ZoneInfo:
    """Return a zone by its exact IANA name. Raises KeyError."""
    return _zone(zone_data.current(), name)


@cache  # at most one for each name that exists
def _zone(data: ZoneData, name: str) -> ZoneInfo:
    return ZoneInfo.from_file(io.BytesIO(data.file(name)), key=name)


def _listed_changes(data: bytes) -> tuple[int, ...]:
    """Return the changes listed in a TZif file (RFC 9636); after them the zone follows its yearly rule."""
    if data[4:5] < b"2":
        return ()
    utc, standard, leaps, times, types, letters = _TZIF_COUNTS.unpack_from(data, _TZIF_COUNTS_AT)
    second = _TZIF_HEADER + times * 5 + types * 6 + letters + leaps * 8 + standard + utc  # 64-bit times
    count = _TZIF_COUNTS.unpack_from(data, second + _TZIF_COUNTS_AT)[3]
    return tuple(_UNIX + at for at in struct.unpack_from(f">{count}q", data, second + _TZIF_HEADER))


def local_time(instant: datetime, name: str) -> datetime:
    """Return an instant in a zone's local time; in UTC if that is outside the years 1 to 9999."""
    try:
        return instant.astimezone(zone(name))
    except OverflowError:
        return instant.astimezone(UTC)


def clock(name: str) -> Clock:
    """Return the clock of a zone. Raises KeyError."""
    return clock_in(zone_data.current(), name)


@cache
def clock_in(data: ZoneData, name: str) -> Clock:
    """Return the clock of a zone in any zone data. Raises KeyError."""
    return Clock(name, _zone(data, name), _listed_changes(data.file(name)))
