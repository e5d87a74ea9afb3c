"""Time zones from the `tzdata` package, so that all replicas agree whatever their operating systems carry."""

import difflib
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import TypeAlias
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

from scheduler.domain.recurrence.day_masks import (
    DAY,
    END_OF_TIME,
    LAST_YEAR,
    january_first,
    year_kind,
    year_length,
)

_ZERO = datetime(1, 1, 1)  # noqa: DTZ001 - the origin of wall time, which has no zone
_REGULAR_FROM = 2100  # by then every zone follows its yearly rule
_UNIX = 719_163 * DAY  # 1970 on the scale of `calendar`
_TZIF_COUNTS = struct.Struct(">6I")
_TZIF_COUNTS_AT = 20
_TZIF_HEADER = 44
_FIRST_SHIFTS = 1800  # until then every place keeps its own sun's time; the first to change is Manila, in 1844
_STRIDE = 6 * DAY  # the fastest there and back: Boa Vista in October 2000, after seven days less an hour
NEARBY = 2 * DAY  # longer than any shift: Samoa skipped a whole day
_NEAR_YEARS = 64  # whose segments are remembered for each zone
_MOST_ALIKE = 60  # names with the same three letters
_MOST_COMPARED = 4  # names compared letter by letter with one that is unknown
_FIRST, _LAST = 3 * DAY, END_OF_TIME - 3 * DAY  # where conversions cannot leave the years 1 to 9999


def tzdata_version() -> str:
    """Return the IANA release that every zone comes from, such as 2026a."""
    return str(tzdata.IANA_VERSION)


@cache
def zone_names() -> frozenset[str]:
    """Return every name that `timezone` may be."""
    names = resources.files(tzdata).joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(names) - {"Factory", "localtime", "posixrules"}


@cache
def _lower_names() -> dict[str, str]:
    return {name.lower(): name for name in zone_names()}


def suggest(name: str) -> str | None:
    """Return the known zone that was probably meant, if one is close."""
    wanted = name[:64].lower().replace(" ", "_")
    shared: Counter[str] = Counter()
    parts = _names_by_part()
    for part in _parts(wanted):
        shared.update(parts.get(part, ()))
    likely = [zone for zone, _ in shared.most_common(_MOST_COMPARED)]
    close = difflib.get_close_matches(wanted, likely, n=1, cutoff=0.75)
    return _lower_names()[close[0]] if close else None


def unknown_zone(name: str) -> str:
    """Return the problem of a text that is not the name of a zone."""
    near = suggest(name)
    hint = f"did you mean {near}?" if near else "write an IANA name such as Europe/Berlin or UTC"
    return f"{name[:64]!r} is not the name of a time zone: {hint}"


@cache
def _names_by_part() -> dict[str, tuple[str, ...]]:
    """Return the names by three letters in a row that they have; letters that many names have tell nothing."""
    found: dict[str, list[str]] = {}
    for name in sorted(_lower_names()):
        for part in _parts(name):
            found.setdefault(part, []).append(name)
    return {part: tuple(names) for part, names in found.items() if len(names) <= _MOST_ALIKE}


def _parts(name: str) -> set[str]:
    return {name[at : at + 3] for at in range(len(name) - 2)}


# From when until when the clocks do not change, their offset, and from when on no wall time is in doubt: neither
# skipped just before nor shown for the second time.
Segment: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Shift:
    """The clocks change at the instant `at`, from one offset to another."""

    at: int
    before: int
    after: int

    @property
    def gap(self) -> bool:
        """Say whether wall times are skipped rather than repeated."""
        return self.after > self.before

    @property
    def size(self) -> int:
        """Return how many seconds are skipped or repeated."""
        return abs(self.after - self.before)


class Clock:
    """One zone's offsets, in whole seconds on the scale of `calendar`."""

    __slots__ = ("_changes", "_info", "_near", "_recent", "_regular_from", "_years", "fixed", "name")

    def __init__(self, name: str, info: ZoneInfo, changes: tuple[int, ...] = ()) -> None:
        """Know a zone by what zoneinfo says, and by the instants of the changes that its file lists, if any."""
        self.name = name
        self._info = info
        self._changes = changes
        self._regular_from = _year_at(changes[-1]) + 1 if changes else _REGULAR_FROM
        self.fixed: int | None = None
        self._years: dict[int, tuple[int, tuple[Shift, ...]]] = {}  # the year in which they were found, and they
        self._near: dict[int, tuple[Segment, ...]] = {}
        self._recent: tuple[Segment, Segment] = ((0, 0, 0, 0), (0, 0, 0, 0))
        always = info.utcoffset(None)  # known without a date only where the clocks never change
        if always is not None:
            self.fixed = always.days * DAY + always.seconds
            self._recent = ((0, END_OF_TIME, self.fixed, 0), (0, 0, 0, 0))

    def offset(self, instant: int) -> int:
        """Return local minus UTC at `instant`."""
        return self.segment(instant)[2]

    def segment(self, instant: int) -> Segment:
        """Return the span around `instant` in which the clocks do not change.

        One that is longer than a year may be cut off, though not within a year of `instant`.
        """
        found, other = self._recent
        if found[0] <= instant < found[1]:
            return found
        if other[0] <= instant < other[1]:
            return other
        if self.fixed is not None:
            return 0, END_OF_TIME, self.fixed, 0
        for known in self._around(_year_at(instant)):
            if instant < known[1]:
                # A search asks about where it starts and where it ends, and the next search about the same two.
                self._recent = known, found
                return known
        raise AssertionError("a year ends before the next one does")

    def _around(self, year: int) -> tuple[Segment, ...]:
        """Return the segments of a year and of those on both sides of it."""
        known = self._near.get(year)
        if known is None:
            shifts = [shift for near in (year - 1, year, year + 1) for shift in self._year(near)]
            first, end = january_first(year - 1) * DAY, january_first(year + 2) * DAY
            edges = [first, *(shift.at for shift in shifts), end]
            offsets = [self._look_up(first), *(shift.after for shift in shifts)]
            settled = [first + NEARBY, *(shift.at + shift.size for shift in shifts)]
            if len(self._near) >= _NEAR_YEARS:
                self._near.clear()
            known = self._near[year] = tuple(zip(edges, edges[1:], offsets, settled, strict=False))
        return known

    def _look_up(self, instant: int) -> int:
        """Return local minus UTC at `instant` as zoneinfo has it."""
        moment = (_ZERO + timedelta(seconds=min(max(instant, _FIRST), _LAST) - DAY)).replace(tzinfo=self._info)
        offset = self._info.fromutc(moment).utcoffset() or timedelta()
        return offset.days * DAY + offset.seconds

    def offsets_of_wall(self, wall: int) -> tuple[int, int]:
        """Return the offsets before and after the shift that `wall` lies in; twice the same elsewhere."""
        start, end, offset, _ = self.segment(wall)
        if start + NEARBY <= wall < end - NEARBY:
            return offset, offset
        moment = (_ZERO + timedelta(seconds=min(max(wall, _FIRST), _LAST) - DAY)).replace(tzinfo=self._info)
        first = self._info.utcoffset(moment) or timedelta()
        second = self._info.utcoffset(moment.replace(fold=1)) or timedelta()
        return first.days * DAY + first.seconds, second.days * DAY + second.seconds

    def to_utc(self, wall: int) -> int:
        """Return the instant of a wall time: its first pass, or by the offset before the gap it lies in."""
        return wall - self.offsets_of_wall(wall)[0]

    def gap_around(self, wall: int) -> Shift | None:
        """Return the gap that swallows `wall`, if one does."""
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
        # Once a zone follows its yearly rule, years of a kind have the same shifts, as long after they begin.
        # The last year shares nothing: its end cannot be looked up.
        regular = self._regular_from <= year < LAST_YEAR
        key = -1 - year_kind(year)[0] * 2 - year_length(year) % 2 if regular else year
        same, known = self._years.get(key, (year, None))
        if known is None and year < self._regular_from - 1 and self._changes:
            known = self._listed(january_first(year) * DAY, january_first(year + 1) * DAY)
            self._years[key] = year, known
        if known is None:
            start, end = january_first(year) * DAY, january_first(year + 1) * DAY
            edges = [*range(start - 1, end - 1, _STRIDE), end - 1]
            offsets = [self._look_up(edge) for edge in edges]
            known = tuple(
                shift
                for (low, high), (before, after) in zip(pairwise(edges), pairwise(offsets), strict=True)
                if before != after
                for shift in self._scan(low, high)
            )
            self._years[key] = year, known
        if same == year:
            return known
        later = (january_first(year) - january_first(same)) * DAY
        return tuple(Shift(shift.at + later, shift.before, shift.after) for shift in known)

    def _listed(self, start: int, end: int) -> tuple[Shift, ...]:
        """Return the shifts from `start` up to, not including, `end`, where the zone's file lists all of them."""
        changes = self._changes[bisect_left(self._changes, start) : bisect_left(self._changes, end)]
        shifts = (Shift(at, self._look_up(at - 1), self._look_up(at)) for at in changes)
        return tuple(shift for shift in shifts if shift.before != shift.after)

    def _scan(self, after: int, until: int) -> Iterator[Shift]:
        """Yield the shifts of a span that has at most one for each change seen at its ends, by halving."""
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


@cache  # at most one for each name that exists
def zone(name: str) -> ZoneInfo:
    """Return a zone by its exact IANA name; KeyError for any other text."""
    if name not in zone_names():
        raise KeyError(name)
    with _file(name).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _file(name: str) -> Traversable:
    return resources.files(tzdata).joinpath("zoneinfo", *name.split("/"))


def _listed_changes(data: bytes) -> tuple[int, ...]:
    """Return the instants that a TZif file (RFC 9636) lists; after the last one a zone follows its yearly rule."""
    if data[4:5] < b"2":
        return ()
    utc, standard, leaps, times, types, letters = _TZIF_COUNTS.unpack_from(data, _TZIF_COUNTS_AT)
    second = _TZIF_HEADER + times * 5 + types * 6 + letters + leaps * 8 + standard + utc  # with times of 64 bits
    count = _TZIF_COUNTS.unpack_from(data, second + _TZIF_COUNTS_AT)[3]
    return tuple(_UNIX + at for at in struct.unpack_from(f">{count}q", data, second + _TZIF_HEADER))


def local_time(instant: datetime, name: str) -> datetime:
    """Return an instant in a zone's own time; in UTC where that would lie outside the years 1 to 9999."""
    try:
        return instant.astimezone(zone(name))
    except OverflowError:
        return instant.astimezone(UTC)


@cache
def clock(name: str) -> Clock:
    """Return the clock of a zone; KeyError if there is no such zone."""
    return Clock(name, zone(name), _listed_changes(_file(name).read_bytes()))
