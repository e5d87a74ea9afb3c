"""Parse `run_at` (RFC 3339, RFC 9557) and `every` (ISO 8601 durations, seconds)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from scheduler.domain.recurrence.rfc5545_stamp import Fault
from scheduler.domain.recurrence.schedule import to_seconds
from scheduler.domain.recurrence.zones import clock, unknown_zone

SHORTEST = timedelta(milliseconds=100)
LONGEST = timedelta(days=36_525)
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2}))?(?P<suffixes>(?:\[[^][]{1,100}\]){0,8})",
)
_SUFFIX = re.compile(r"\[(!?)([^]]+)\]")
_PLAIN = re.compile(r"[0-9-]{10}T[0-9:]{8}(?:\.[0-9]{6})?(?:Z|[+-][0-9]{2}:[0-9]{2})")
_DURATION = re.compile(
    r"[Pp](?:([0-9.,]+)[Ww])?(?:([0-9.,]+)[Dd])?"
    r"(?:[Tt](?:([0-9.,]+)[Hh])?(?:([0-9.,]+)[Mm])?(?:([0-9.,]+)[Ss])?)?",
)
_CALENDAR = re.compile(r"[Pp][^Tt]*[0-9][YyMm].*")
_NUMBER = re.compile(r"[0-9]{1,12}(?:[.,][0-9]{1,9})?")
_SECONDS = (604_800, 86_400, 3_600, 60, 1)


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant, or a wall time without a zone."""

    wall: datetime  # naive
    offset: timedelta | None
    zone: str | None = None  # from an RFC 9557 suffix; consistent with the offset

    def instant(self) -> datetime:
        """Return the UTC instant of a moment that has an offset."""
        return self.wall.replace(tzinfo=timezone(self.offset or timedelta())).astimezone(UTC)


def plain_instant(text: str) -> datetime | None:
    """Return the UTC instant of the usual format, quickly; None for any other text."""
    if not _PLAIN.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text)
        return instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_moment(text: str) -> Moment:
    """Parse RFC 3339 or RFC 9557; the offset is optional. Raises Fault."""
    match = _MOMENT.fullmatch(text)
    if not match:
        raise Fault(
            f"write RFC 3339, such as 2026-12-01T09:00:00Z or 2026-12-01T09:00:00+01:00, not {text[:40]!r}"
        )
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    micro = int((match[7] or "0").ljust(6, "0")[:6])  # truncate: Postgres would round
    try:
        wall = datetime(year, month, day, hour, minute, second, micro)  # noqa: DTZ001 - the offset comes next
    except ValueError as error:
        raise Fault(f"{text[:40]} does not exist: {error}") from None
    offset = _offset(match)
    if not match["suffixes"]:
        return Moment(wall, offset)
    moment = Moment(wall, offset, _zone(match["suffixes"]))
    if moment.zone is not None and offset is not None and not match[8]:
        _check_offset(moment, moment.zone, offset)
    return moment


def _zone(suffixes: str) -> str | None:
    """Return the zone from RFC 9557 suffixes. Other suffixes are ignored unless they are critical (`!`)."""
    zone = None
    for index, (critical, content) in enumerate(_SUFFIX.findall(suffixes)):
        if "=" in content:
            if critical:
                raise Fault(f"the suffix [!{content[:40]}] is not supported; remove it")
        elif index:
            raise Fault("give one zone in brackets, first: 2026-12-01T09:00:00+01:00[Europe/Berlin]")
        else:
            zone = content
            try:
                clock(zone)
            except KeyError:
                raise Fault(unknown_zone(zone)) from None
    return zone


def _check_offset(moment: Moment, zone: str, offset: timedelta) -> None:
    """Raise Fault if the zone does not have this offset then. A `Z` contradicts no zone (RFC 9557, 2.2)."""
    try:
        instant = moment.instant()
    except OverflowError:
        return  # outside the years 1 to 9999: reported by the caller
    actual = timedelta(seconds=clock(zone).offset(to_seconds(instant)[0]))
    if actual != offset:
        raise Fault(
            f"the offset does not match {zone}, which has {_format_offset(actual)} at this time: "
            "remove the offset or the zone, or give the right one"
        )


def _format_offset(offset: timedelta) -> str:
    minutes = round(abs(offset).total_seconds() / 60)
    return f"{'-' if offset < timedelta() else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _offset(match: re.Match[str]) -> timedelta | None:
    if match[8]:
        return timedelta()
    if not match[9]:
        return None
    hours, minutes = int(match[10]), int(match[11])
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - RFC 3339
        raise Fault(f"the offset {match[9]}{match[10]}:{match[11]} does not exist")
    offset = timedelta(hours=hours, minutes=minutes)
    return offset if match[9] == "+" else -offset


def read_duration(value: str | float) -> timedelta:
    """Return a duration from ISO 8601 text or a number of seconds. Raises Fault."""
    try:
        length = _text_duration(value.strip()) if isinstance(value, str) else _of_seconds(value)
    except (OverflowError, ValueError):  # NaN and infinities too
        raise Fault(_range_fault()) from None
    if not SHORTEST <= length <= LONGEST:
        raise Fault(_range_fault())
    return length


def _of_seconds(seconds: float) -> timedelta:
    # A timedelta is rounded to microseconds and could reach the limit from below.
    return timedelta() if seconds < SHORTEST.total_seconds() else timedelta(seconds=seconds)


def _range_fault() -> str:
    return "the interval must be at least 0.1 seconds and at most 100 years (36525 days)"


def _text_duration(text: str) -> timedelta:
    if len(text) <= 64 and _NUMBER.fullmatch(text):  # noqa: PLR2004 - longer than any useful number
        return _of_seconds(float(text.replace(",", ".")))
    match = _DURATION.fullmatch(text) if len(text) <= 64 else None  # noqa: PLR2004 - longer than any useful duration
    if _CALENDAR.fullmatch(text[:64]):
        raise Fault("years and months have no fixed length; use rrule, such as FREQ=MONTHLY, or days and weeks")
    if not match or not any(match.groups()) or text[-1] in "Tt":
        raise Fault(f"write an ISO 8601 duration such as PT15M or P1D, or seconds, not {text[:40]!r}")
    return sum((_scaled(part, scale) for part, scale in zip(match.groups(), _SECONDS, strict=True)), timedelta())


def _scaled(part: str | None, scale: int) -> timedelta:
    if part is None:
        return timedelta()
    if not _NUMBER.fullmatch(part):
        raise Fault(f"{part[:40]} is not a number")
    integer, _, fraction = part.replace(",", ".").partition(".")
    # In whole microseconds: a float would round PT0.1H.
    micros = int(integer) * scale * 1_000_000 + int((fraction or "0").ljust(9, "0")) * scale // 1000
    return timedelta(microseconds=micros)
