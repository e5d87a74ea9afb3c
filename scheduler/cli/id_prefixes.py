"""Ids on the command line: whole ones, and prefixes of at least eight characters that match one row."""

import argparse
import re
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from scheduler.domain.errors import SchedulerError

LEAST = 8  # characters
_UUID = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"


class UnknownId(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """A prefix matches nothing, or more than one row."""


class IdPrefix(NamedTuple):
    """The beginning of an id of a kind, in lower case with hyphens."""

    kind: str
    text: str
    number: int | None = None  # of a delayed message, if the text can be both

    @property
    def first(self) -> str:
        """The first id with this prefix."""
        return self.text + _UUID[len(self.text):].replace("x", "0")

    @property
    def last(self) -> str:
        """The last id with this prefix."""
        return self.text + _UUID[len(self.text):].replace("x", "f")


def id_of(kind: str) -> Callable[[str], UUID | int | IdPrefix]:
    """Return the type of an argument that is the id of a job, run, dead letter or delayed message."""

    def read(text: str) -> UUID | int | IdPrefix:
        number = int(text) if kind == "delayed" and re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else None
        if number is not None and len(text) < LEAST:
            return number
        try:
            return UUID(text)
        except ValueError:
            return IdPrefix(kind, _prefix(text), number)

    return read


def _prefix(text: str) -> str:
    lower = text.lower()
    if "-" not in lower:
        lower = "-".join(part for part in (lower[:8], lower[8:12], lower[12:16], lower[16:20], lower[20:]) if part)
    if len(text) < LEAST or not _UUID.startswith(re.sub("[0-9a-f]", "x", lower)):
        rule = f"give the id, or at least its first {LEAST} characters"
        raise argparse.ArgumentTypeError(f"invalid UUID value: {text!r}; {rule}")
    return lower
