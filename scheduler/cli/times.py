"""Times on the command line: RFC 3339, or relative to now such as -1h or +2d."""

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from scheduler.domain.instants import parse_instant, rfc3339

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
HELP = "RFC 3339, or relative to now: -1h, +2d"
_RELATIVE = re.compile(r"([+-])([0-9]{1,9})([smhdw])", re.ASCII)


def instant(text: str) -> datetime:
    """Parse a time; raises the error of an invalid argument."""
    match = _RELATIVE.fullmatch(text)
    try:
        if match is None:
            return parse_instant(text)
        span = timedelta(seconds=int(match[2]) * UNITS[match[3]])
        return datetime.now(UTC) + (span if match[1] == "+" else -span)
    except OverflowError:
        raise argparse.ArgumentTypeError("must be within the years 1 to 9999") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; or relative to now, such as -1h or +2d") from None


def absolute(text: str) -> str:
    """Return a relative time as RFC 3339; other text is returned as it is, for the parser of requests."""
    return rfc3339(instant(text)) if _RELATIVE.fullmatch(text) else text


def join_relative(arguments: Sequence[str]) -> list[str]:
    """Join an option and a time in the past, which argparse would read as another option: `--since=-1h`."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _RELATIVE.fullmatch(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined
