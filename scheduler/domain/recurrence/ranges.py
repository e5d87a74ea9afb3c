"""Sets of instants as ranges: in order, disjoint, each with its first instant and its exclusive end."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter

Range = tuple[datetime, datetime]

FOREVER = datetime.max.replace(tzinfo=UTC)
_end = itemgetter(1)


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the set that contains ranges in any order; they may overlap."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif first < end:
            joined.append((first, end))
    return joined


def clip(first: datetime, end: datetime, ranges: Sequence[Range]) -> Iterator[Range]:
    """Yield the part of a set from `first` up to `end`."""
    for index in range(bisect_right(ranges, first, key=_end), len(ranges)):
        low, high = ranges[index]
        if low >= end:
            return
        yield max(low, first), min(high, end)


def common(one: Iterable[Range], other: Sequence[Range]) -> list[Range]:
    """Return the intersection of two sets."""
    return [part for first, end in one for part in clip(first, end, other)]


def complement(ranges: Iterable[Range], first: datetime, end: datetime) -> list[Range]:
    """Return the instants from `first` up to `end` that are not in a set."""
    missing = []
    for low, high in ranges:
        if low > first:
            missing.append((first, min(low, end)))
        first = max(first, high)
        if first >= end:
            return missing
    return [*missing, (first, end)] if first < end else missing
