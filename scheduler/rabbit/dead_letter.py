"""A message that lies in scheduler_dead: what it says, and what it was before it came there."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS
from scheduler.domain.names import COMMANDS_EXCHANGE
from scheduler.rabbit import content, header_values

_COUNT = b"x-delivery-count"  # what the queue writes on it with each look is no part of what it is
_OUR_HEADERS = frozenset((
    b"x-rejected-reason", b"x-rejected-at", b"x-dead-reason", b"x-dead-at", b"x-attempts", b"x-due-at",
    b"x-original-exchange", b"x-original-expiration", b"x-original-user-id", b"x-death", _COUNT,
    b"x-first-death-exchange", b"x-first-death-queue", b"x-first-death-reason",
    b"x-last-death-exchange", b"x-last-death-queue", b"x-last-death-reason",
))
_PERSISTENT = b"\x02"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What is known of it."""

    id: str  # the same for as long as it lies there
    key: bytes
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    raw: bytes  # its properties as they came
    tag: int

    @property
    def routing_key(self) -> str:
        """Its routing key as people can read it."""
        return header_values.as_text(self.key)

    @property
    def reason(self) -> str:
        """Why it is there."""
        for name in ("x-rejected-reason", "x-dead-reason"):
            if isinstance(self.headers.get(name), str):
                return str(self.headers[name])
        death = self._death
        return f"{death.get('reason')} in {death.get('queue')}" if death else "not known: it says nothing of it"

    @property
    def at(self) -> str | None:
        """When it came, as far as it says."""
        for name in ("x-rejected-at", "x-dead-at"):
            if isinstance(self.headers.get(name), str):
                return str(self.headers[name])
        time = self._death.get("time")
        return f"{time:%Y-%m-%dT%H:%M:%SZ}" if isinstance(time, datetime) else None

    @property
    def place(self) -> tuple[str, str]:
        """Where it stands in the list."""
        return self.at or "", self.id

    @property
    def run_given_up(self) -> bool:
        """Whether it is the event of a run: to replay that is to retry the run."""
        said = "x-dead-reason" in self.headers and "x-original-exchange" not in self.headers
        return said and self.routing_key == "due"

    @property
    def exchange(self) -> str | None:
        """Where it came from."""
        said = self.headers.get("x-original-exchange")
        if isinstance(said, str):
            return said
        dead = self._death.get("exchange")
        if isinstance(dead, str) and dead:
            return dead
        known = self.routing_key in COMMAND_MODELS or self.routing_key in RESULT_MODELS
        return COMMANDS_EXCHANGE if known and "x-rejected-reason" in self.headers else None

    @property
    def _death(self) -> Mapping[str, Any]:
        found = self.headers.get("x-death")
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}

    def before(self) -> bytes:
        """Return its properties without what came to them on the way here; it is persistent."""
        found = content.read(self.raw)
        for name in ("user_id", "expiration"):  # the broker would refuse the one, and the other ended it
            found.parts.pop(name, None)
        expiration = self.headers.get("x-original-expiration")
        if isinstance(expiration, str) and len(expiration.encode()) <= content.MOST_SHORT:
            found.parts["expiration"] = content.short(expiration)
        found.parts["delivery_mode"] = _PERSISTENT
        return found.written(drop=_OUR_HEADERS)


def read(key: bytes, raw: bytes, body: bytes, tag: int) -> DeadLetter:
    """Return what came, as far as it can be read."""
    try:
        found = content.read(raw)
    except content.Unreadable:
        found = content.Content({}, [], b"")
    headers = header_values.headers(found)
    headers.pop(_COUNT.decode(), None)
    properties = header_values.properties(found)
    properties.pop("delivery_mode", None)
    return DeadLetter(_id(key, found, body), key, body, headers, properties, raw, tag)


def _id(key: bytes, found: content.Content, body: bytes) -> str:
    """Return the same at each look, though the queue counts them and may write the headers in another order."""
    parts = sorted((name, part) for name, part in found.parts.items() if name != "headers")
    headers = sorted(found.table[each.start : each.end] for each in found.entries if each.name != _COUNT)
    return str(UUID(bytes=hashlib.sha256(repr((key, parts, headers)).encode() + body).digest()[:16]))
