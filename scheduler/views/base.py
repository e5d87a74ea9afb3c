"""Base classes of views and pages."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, from_json

from scheduler.domain.instants import rfc3339

Item = TypeVar("Item")


class View(BaseModel):
    """A JSON object of a response."""

    model_config = ConfigDict(frozen=True)

    optional: ClassVar[frozenset[str]] = frozenset()  # fields that are left out of the JSON where they are None
    lists: ClassVar[frozenset[str]] = frozenset()  # fields with lists of views that have optional fields


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and the cursor of the next page, if there is one."""

    items: Sequence[Item]
    next: str | None = None


class Verbatim:
    """A stored value as its JSON text: it is nested deeper than pydantic reads or writes."""

    __slots__ = ("text",)  # no dataclass: pydantic would write one as an object of its own

    def __init__(self, text: str) -> None:
        self.text = text


def stored(text: str) -> Any:
    """Return the value of a stored JSON text, Verbatim if it is nested too deeply."""
    try:
        return from_json(text)
    except ValueError:
        return Verbatim(text)


def as_json(view: BaseModel, *, warnings: bool = True) -> str:
    """Encode a view as JSON, with Verbatim values unchanged."""
    absent = _absent(view)
    try:
        return view.model_dump_json(exclude=absent or None, warnings=warnings)
    except PydanticSerializationError:
        members = ((name, _member(view, name)) for name in type(view).model_fields if absent.get(name) is not True)
        return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in members)}}}"


def _absent(view: BaseModel) -> dict[str, Any]:
    """Return the optional fields that are None as pydantic excludes them."""
    absent: dict[str, Any] = {name: True for name in getattr(view, "optional", ()) if getattr(view, name) is None}
    for name in getattr(view, "lists", ()):
        absent[name] = {index: _absent(element) for index, element in enumerate(getattr(view, name))}
    return absent


def _member(view: BaseModel, name: str) -> str:
    value = getattr(view, name)
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, list) and all(isinstance(element, BaseModel) for element in value):
        return list_as_json(value)
    return view.model_dump_json(include={name}, warnings=False).partition(":")[2][:-1]


def list_as_json(views: Iterable[BaseModel]) -> str:
    """Encode views as a JSON list."""
    return f"[{','.join(map(as_json, views))}]"


def in_ascii(text: str) -> str:
    """Return a JSON text for a terminal or a pipe of any encoding."""
    return re.sub(r"[^\x00-\x7f]", lambda character: json.dumps(character[0])[1:-1], text)


def instant(moment: datetime | None) -> str | None:
    """Format an instant in RFC 3339."""
    return None if moment is None else rfc3339(moment)


def seconds(span: timedelta | None) -> float | int | None:
    """Return a span in seconds, as an int if it is whole."""
    if span is None:
        return None
    seconds = span.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


Json = Any
