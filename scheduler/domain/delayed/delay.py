"""What the delay headers of a message ask for, whichever kind of AMQP value they are.

Nothing here knows bytes: a header's value is given as what it says (`HeaderValue`).
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from scheduler.domain.errors import Problem, Reason, Rejected
from scheduler.domain.instants import parse_instant

# In the order in which they count, where a message has several.
DELIVER_AT, DELIVERY_TIME, DELIVERY_DELAY, DELAY = (
    "x-deliver-at", "x-opt-delivery-time", "x-opt-delivery-delay", "x-delay",
)
DELAY_HEADERS = (DELIVER_AT, DELIVERY_TIME, DELIVERY_DELAY, DELAY)
MOST_YEARS = 100
MOST = timedelta(days=365.25 * MOST_YEARS)
_MOST_MS = MOST // timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"[+-]?[0-9]{1,40}", flags=re.ASCII)
_LONG_FRACTION = re.compile(r"(\.[0-9]{6})[0-9]+")  # .NET writes seven digits, Go nine
_TOO_FAR = f"lies more than {MOST_YEARS} years ahead"
_NO_NUMBER = "must be a number of milliseconds, as an AMQP number or as text of digits"


class Timestamp(NamedTuple):
    """An AMQP timestamp: seconds since 1970, of which pika reads only those before the year 10000."""

    seconds: int


class Other(NamedTuple):
    """A value of a kind that says neither how long nor when: a table, an array, bytes."""

    kind: str


HeaderValue = int | float | Decimal | str | bool | Timestamp | Other | None


# Never changed once made, and not `frozen`: see jobs/definition.py.
@dataclass(slots=True)
class Delay:
    """How long from when it is stored, or until when; at once where it is neither."""

    milliseconds: int = 0
    instant: datetime | None = None
    header: str = DELAY  # which one said so

    @property
    def relative(self) -> bool:
        """Whether it counts from when the message is stored."""
        return self.instant is None


def parse_delay(headers: Mapping[str, HeaderValue]) -> Delay:
    """Return what the first of the delay headers says; raise Rejected with what is wrong with any of them."""
    found: Delay | None = None
    problems = []
    for name in DELAY_HEADERS:
        if name not in headers:
            continue
        try:
            read = _READERS[name](headers[name], name)
        except ValueError as error:
            problems.append(Problem(name, str(error)))
            continue
        found = found or read
    if problems:
        raise Rejected(problems, Reason.SCHEDULE)
    return found or Delay()


def due_at(delay: Delay, now: datetime) -> datetime:
    """Return when a message that is stored now comes out, never before now; raise Rejected if that is too far."""
    if delay.instant is None:
        return now + timedelta(milliseconds=delay.milliseconds) if delay.milliseconds > 0 else now
    if delay.instant - now > MOST:
        raise Rejected([Problem(delay.header, _TOO_FAR)], Reason.SCHEDULE)
    return max(delay.instant, now)


def elapsed_delay(value: HeaderValue) -> int | None:
    """Return what x-delay says when the message comes out; None where it stays as it is: it is over."""
    milliseconds = parse_integer(value)
    return -milliseconds if milliseconds > 0 else None


def parse_integer(value: HeaderValue) -> int:
    """Return a number, its fraction cut, or text of digits as a number; raise ValueError for all else."""
    match value:
        case bool():
            pass
        case int():
            return value
        case float() if math.isfinite(value):
            return int(value)
        case Decimal():
            return int(value)
        case str() if _DIGITS.fullmatch(value):
            return int(value)
    raise ValueError(f"{_NO_NUMBER}, not {_shown(value)}")


def _milliseconds(value: HeaderValue, name: str) -> Delay:
    found = parse_integer(value)
    if found > _MOST_MS:
        raise ValueError(f"{_TOO_FAR}: it is in milliseconds")
    return Delay(max(found, 0), header=name)


def _time(value: HeaderValue, name: str) -> Delay:
    return Delay(instant=_since_1970(parse_integer(value), "milliseconds"), header=name)


def _instant(value: HeaderValue, name: str) -> Delay:
    if isinstance(value, Timestamp):
        return Delay(instant=_since_1970(value.seconds, "seconds"), header=name)
    if not isinstance(value, str):
        raise ValueError(f"must be RFC 3339 text or an AMQP timestamp, not {_shown(value)}")  # noqa: TRY004 - a verdict on a header, as all others
    return Delay(instant=parse_instant(_LONG_FRACTION.sub(r"\1", value)), header=name)


def _since_1970(count: int, unit: str) -> datetime:
    try:
        return _EPOCH + timedelta(**{unit: max(count, 0)})
    except OverflowError:
        raise ValueError(f"{_TOO_FAR}: it is in {unit} since 1970") from None


_READERS: dict[str, Callable[[HeaderValue, str], Delay]] = {
    DELIVER_AT: _instant, DELIVERY_TIME: _time, DELIVERY_DELAY: _milliseconds, DELAY: _milliseconds,
}


def _shown(value: HeaderValue) -> str:
    match value:
        case None:
            return "nothing"
        case Other():
            return f"a value of kind {value.kind}"
        case Timestamp():
            return "a timestamp"
        case str():
            return ascii(value[:80])
        case _:
            return str(value)[:80]
