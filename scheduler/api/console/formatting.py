"""Format times, time spans and numbers; `now` is always an argument."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from scheduler.domain.recurrence import local_time, zone_names

_MINUTE, _HOUR, _DAY, _YEAR = 60.0, 3600.0, 86_400.0, 365.25 * 86_400
_UNITS = ((_YEAR, "year"), (_DAY, "day"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s"))
_JUST_NOW = 1.0
_THOUSAND = 1000
# The format of a browser's date and time inputs.
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")
NOTHING = "\N{EN DASH}"  # for a missing value


def moment_like(text: str) -> bool:
    """Return whether a date and time input can show a value."""
    return _MOMENT.fullmatch(text) is not None


def instant(text: str | datetime | None) -> datetime | None:
    """Parse an instant of the API."""
    if text is None or isinstance(text, datetime):
        return text
    return datetime.fromisoformat(text)


def relative(moment: str | datetime | None, now: datetime) -> str:
    """Format a moment relative to `now`, in the largest unit: in 12 min, 3 days ago, now."""
    when = instant(moment)
    if when is None:
        return "never"
    seconds = (when - now).total_seconds()
    if abs(seconds) < _JUST_NOW:
        return "now"
    text = _largest(abs(seconds))
    return f"in {text}" if seconds > 0 else f"{text} ago"


def _largest(seconds: float) -> str:
    for size, unit in _UNITS:
        count = int(seconds // size)
        if count >= 1:
            plural = "s" if count > 1 and unit in ("day", "year") else ""
            return f"{count:,} {unit}{plural}"
    return "1 s"


def span(seconds: float | None) -> str:
    """Format a time span with two significant parts: 3 ms, 1.2 s, 2 min 5 s, 3 h 4 min, 2 days."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        milliseconds = max(0.0, seconds) * 1000
        return f"{milliseconds:.1f} ms" if 0 < milliseconds < 10 else f"{milliseconds:.0f} ms"  # noqa: PLR2004 - two digits
    if seconds < _MINUTE:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for (size, unit), (part, small) in pairwise(_UNITS[1:]):
        if whole >= size:
            rest = int(whole % size // part)
            plural = "s" if unit == "day" and whole // size > 1 else ""
            return f"{int(whole // size):,} {unit}{plural}" + (f" {rest} {small}" if rest else "")
    raise AssertionError(seconds)


def local(moment: str | datetime | None, zone_name: str | None = None) -> str:
    """Format a moment in full, in a time zone: Fri 20 Nov 2026 09:00 CET."""
    when = instant(moment)
    if when is None:
        return ""
    here = local_time(when, zone_name if zone_name and zone_name in zone_names() else "UTC")
    seconds = f":{here:%S}" if here.second or here.microsecond else ""
    return f"{here:%a} {here.day} {here:%b %Y %H:%M}{seconds} {here:%Z}"


def utc_beside(moment: str | datetime, zone_name: str) -> str:
    """Format a moment in UTC to follow its local time; the date is omitted if it is the same."""
    when = instant(moment)
    assert when is not None  # noqa: S101 - of an occurrence
    utc, here = local(when), local_time(when, zone_name if zone_name in zone_names() else "UTC")
    return utc.split(" ", 4)[4] if when.astimezone(UTC).date() == here.date() else utc


def exactly(moment: str | datetime | None) -> str:
    """Format a moment in UTC with milliseconds, for a title."""
    when = instant(moment)
    return "" if when is None else when.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")


def number(value: float | None) -> str:
    """Format a number with thousands separators, and one decimal for small fractions."""
    if value is None:
        return NOTHING
    return f"{value:,.1f}" if value % 1 and abs(value) < 100 else f"{value:,.0f}"  # noqa: PLR2004 - above, fractions do not matter


def short(value: int) -> str:
    """Format a number in up to four characters, for a cell: 950, 1.2k, 35k, 4M; empty for 0."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if value >= size:
            return f"{value / size:.1f}{unit}" if value < 9.95 * size else f"{value / size:.0f}{unit}"
    return str(value) if value else ""


def percent(share: float | None) -> str:
    """Format a share; only a complete one is 100 %: 99.98 %, 98.1 %."""
    if share is None:
        return NOTHING
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    return f"{min(share * 100, 99.99):.2f} %" if share > 0.99 else f"{share * 100:.1f} %"  # noqa: PLR2004 - nines matter


def count(value: int, one: str, many: str | None = None) -> str:
    """Format a number with its unit: 1 job, 214 jobs."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def duration_of(run: Mapping[str, Any]) -> float | None:
    """Return the duration of a run or an attempt in seconds, None if its start or end is unknown."""
    if run.get("duration_ms") is not None:
        return float(run["duration_ms"]) / _THOUSAND
    started, finished = instant(run.get("started_at")), instant(run.get("finished_at"))
    if started is None or finished is None:
        return None
    return max(0.0, (finished - started) / timedelta(seconds=1))


def join_words(words: Sequence[str]) -> str:
    """Join words with commas and "and": Mon, Tue and Fri."""
    if len(words) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def ordinal(value: int) -> str:
    """Format an ordinal; negative ones count from the end: 1st, 22nd, last, 2nd to last."""
    if value < 0:
        return "last" if value == -1 else f"{ordinal(-value)} to last"
    tens = value % 100
    suffix = "th" if 11 <= tens <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")  # noqa: PLR2004 - 11th
    return f"{value}{suffix}"
