"""What every view has in common, and pages of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from scheduler.domain.times import rfc3339

Item = TypeVar("Item")


class View(BaseModel):
    """A JSON object as people get it."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and the cursor by which the next ones are asked for, if there are any."""

    items: Sequence[Item]
    next: str | None = None


def instant(moment: datetime | None) -> str | None:
    """Write a moment as the contract does."""
    return None if moment is None else rfc3339(moment)


def seconds(span: timedelta | None) -> float | int | None:
    """Write a span in seconds, whole where it is."""
    if span is None:
        return None
    found = span.total_seconds()
    return int(found) if found.is_integer() else found


Json = Any
