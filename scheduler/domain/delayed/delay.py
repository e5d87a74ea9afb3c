"""Parse the delay headers of a message, given as decoded values (`HeaderValue`)."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from scheduler.domain.errors import Problem, Reason, Rejected
from scheduler.domain.instants import parse_instant

# In order of precedence, if a message has several.
DELIVER_AT, DELIVERY_TIME, DELIVERY_DELAY, DELAY = (
    "x-deliver-at", "x-opt-delivery-time", "x-opt-delivery-delay", "x-delay",
)
DELAY_HEADERS = (DELIVER_AT, DELIVERY_TIME, DELIVERY_DELAY, DELAY)
MAX_YEARS = 100
MAX_DELAY = timedelta(days=365.25 * MAX_YEARS)
_MAX_MS = MAX_DELAY // timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"[+-]?[0-9]{1,40}", flags=re.ASCII)
_LONG_FRACTION = re.compile(r"(\.[0-9]{6})[0-9]+")  # .NET writes seven digits, Go nine
_TOO_FAR = f"is more than {MAX_YEARS} years ahead"
_NO_NUMBER = "must be a number of milliseconds: an AMQP number or a string of digits"


class Timestamp(NamedTuple):
    """An AMQP timestamp in seconds since 1970; pika decodes only years before 10000."""

    seconds: int


class Other(NamedTuple):
    """A value that is neither a delay nor a time: a table, an array, bytes."""

    kind: str


HeaderValue = int | float | Decimal | str | bool | Timestamp | Other | None


# Immutable by convention, not `frozen`: see jobs/definition.py.
@dataclass(slots=True)
class Delay:
    """A delay from the time of storing, or a due time; by default immediate."""

    milliseconds: int = 0
    instant: datetime | None = None
    header: str = DELAY  # its source

    @property
    def relative(self) -> bool:
        """Whether it counts from the time of storing."""
        return self.instant is None


def parse_delay(headers: Mapping[str, HeaderValue]) -> Delay:
    """Return the delay of the first delay header. Raises Rejected with the problems of all of them."""
    delay: Delay | None = None
    problems = []
    for name in DELAY_HEADERS:
        if name not in headers:
            continue
        try:
            parsed = _READERS[name](headers[name], name)
        except ValueError as error:
            problems.append(Problem(name, str(error)))
            continue
        delay = delay or parsed
    if problems:
        raise Rejected(problems, Reason.SCHEDULE)
    return delay or Delay()


def due_at(delay: Delay, now: datetime) -> datetime:
    """Return the due time of a message stored now, never in the past. Raises Rejected if it is too far ahead."""
    if delay.instant is None:
        return now + timedelta(milliseconds=delay.milliseconds) if delay.milliseconds > 0 else now
    if delay.instant - now > MAX_DELAY:
        raise Rejected([Problem(delay.header, _TOO_FAR)], Reason.SCHEDULE)
    return max(delay.instant, now)


def elapsed_delay(value: HeaderValue) -> int | None:
    """Return the x-delay of the published message, a negative number; None if it stays unchanged."""
    milliseconds = parse_integer(value)
    return -milliseconds if milliseconds > 0 else None


def parse_integer(value: HeaderValue) -> int:
    """Return a number without its fraction, or a string of digits as a number. Raises ValueError."""
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
    raise ValueError(f"{_NO_NUMBER}, not {_describe(value)}")


def _milliseconds(value: HeaderValue, name: str) -> Delay:
    milliseconds = parse_integer(value)
    if milliseconds > _MAX_MS:
        raise ValueError(f"{_TOO_FAR}: it is in milliseconds")
    return Delay(max(milliseconds, 0), header=name)


def _time(value: HeaderValue, name: str) -> Delay:
    return Delay(instant=_since_1970(parse_integer(value), "milliseconds"), header=name)


def _instant(value: HeaderValue, name: str) -> Delay:
    if isinstance(value, Timestamp):
        return Delay(instant=_since_1970(value.seconds, "seconds"), header=name)
    if not isinstance(value, str):
        raise ValueError(f"must be RFC 3339 text or an AMQP timestamp, not {_describe(value)}")  # noqa: TRY004 - all header problems are ValueErrors
    return Delay(instant=parse_instant(_LONG_FRACTION.sub(r"\1", value)), header=name)


def _since_1970(count: int, unit: str) -> datetime:
    try:
        return _EPOCH + timedelta(**{unit: max(count, 0)})
    except OverflowError:
        raise ValueError(f"{_TOO_FAR}: it is in {unit} since 1970") from None


_READERS: dict[str, Callable[[HeaderValue, str], Delay]] = {
    DELIVER_AT: _instant, DELIVERY_TIME: _time, DELIVERY_DELAY: _milliseconds, DELAY: _milliseconds,
}


def _describe(value: HeaderValue) -> str:
    match value:
        case None:
            return "nothing"
        case Other():
            return f"a value of type {value.kind}"
        case Timestamp():
            return "a timestamp"
        case str():
            return ascii(value[:80])
        case _:
            return str(value)[:80]
