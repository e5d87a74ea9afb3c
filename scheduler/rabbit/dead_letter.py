"""A message that lies in scheduler_dead: what it says, and what it was before it came there."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS
from scheduler.domain.names import (
    COMMANDS_EXCHANGE,
    DELAY_EXCHANGE,
    DELAY_QUEUE,
    INBOX_QUEUE,
    RESULTS_QUEUE,
    delay_entry,
    delay_queue,
)
from scheduler.rabbit import content_header, header_values
from scheduler.rabbit.message_forwarding import BODY_CUT, COPIES, DEATH, ORIGINAL_EXCHANGE, SAID

_OF_A_DELAYED_ONE = frozenset((b"x-attempts", b"x-due-at"))  # beside our x-dead-reason
_BROKERS = frozenset((
    DEATH, *content_header.COUNTS, b"x-first-death-exchange", b"x-first-death-queue", b"x-first-death-reason",
    b"x-last-death-exchange", b"x-last-death-queue", b"x-last-death-reason",
))
_ENTRIES = {INBOX_QUEUE: COMMANDS_EXCHANGE, RESULTS_QUEUE: COMMANDS_EXCHANGE, DELAY_QUEUE: DELAY_EXCHANGE}
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
        if death := self._death:
            return f"{death.get('reason')} in {death.get('queue')}"
        return self._said("x-rejected-reason", "x-dead-reason") or "not known: it says nothing of it"

    @property
    def at(self) -> str | None:
        """When it came, as far as it says."""
        if death := self._death:
            time = death.get("time")
            return f"{time:%Y-%m-%dT%H:%M:%SZ}" if isinstance(time, datetime) else None
        return self._said("x-rejected-at", "x-dead-at")

    @property
    def place(self) -> tuple[str, str]:
        """Where it stands in the list."""
        return self.at or "", self.id

    @property
    def run_given_up(self) -> bool:
        """Whether it is the event of a run: to replay that is to retry the run."""
        said = "x-dead-reason" in self.headers and ORIGINAL_EXCHANGE not in self.headers
        return said and not self._death and self.routing_key == "due"

    @property
    def body_was_cut(self) -> bool:
        """Whether only the beginning of its body was kept."""
        return BODY_CUT in self.headers and not self._death

    @property
    def user_id(self) -> str | None:
        """The broker user that published it, as verified by the broker."""
        if self._death:
            user_id = self.properties.get("user_id")
            return user_id if isinstance(user_id, str) else None
        return self._said("x-original-user-id")

    @property
    def exchange(self) -> str | None:
        """Where it came from."""
        if death := self._death:
            return _fed_by(death.get("queue"), death.get("exchange"))
        known = self.routing_key in COMMAND_MODELS or self.routing_key in RESULT_MODELS
        ours = COMMANDS_EXCHANGE if known and "x-rejected-reason" in self.headers else None
        return self._said(ORIGINAL_EXCHANGE) or ours

    @property
    def _death(self) -> Mapping[str, Any]:
        """What the broker wrote where it moved it here; where we did, there is none."""
        found = self.headers.get(DEATH.decode())
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}

    def _said(self, *names: str) -> str | None:
        return next((said for name in names if isinstance(said := self.headers.get(name), str)), None)

    def before(self) -> bytes:
        """Return its properties without what came to them on the way here; it is persistent."""
        found = content_header.read(self.raw)
        for name in ("user_id", "expiration"):  # the broker would refuse the one, and the other ended it
            found.parts.pop(name, None)
        found.parts["delivery_mode"] = _PERSISTENT
        if self._death:
            return found.written(drop=_BROKERS | COPIES)  # all else is its publisher's own
        expiration = self._said("x-original-expiration")
        if expiration is not None and len(expiration.encode()) <= content_header.MOST_SHORT:
            found.parts["expiration"] = content_header.short(expiration)
        delayed = _OF_A_DELAYED_ONE if "x-dead-reason" in self.headers else frozenset[bytes]()
        return found.written(drop=_BROKERS | COPIES | SAID | delayed)


def _fed_by(queue: Any, exchange: Any) -> str | None:
    """Return the exchange from which a queue has its messages.

    RabbitMQ 3.10 takes over what a publisher wrote of a death in the same queue, its exchange too: the queue alone
    is true, and decides. What died in a queue of others never becomes a command.
    """
    if isinstance(queue, str):
        if queue in _ENTRIES:
            return _ENTRIES[queue]
        if queue.startswith(delay_queue("")):
            return delay_entry(queue.removeprefix(delay_queue("")))
    return exchange if isinstance(exchange, str) and exchange not in ("", COMMANDS_EXCHANGE) else None


def read(key: bytes, raw: bytes, body: bytes, tag: int) -> DeadLetter:
    """Return what came, as far as it can be read."""
    try:
        found = content_header.read(raw)
    except content_header.UnreadableContent:
        found = content_header.ContentHeader({}, [], b"")
    headers = header_values.headers(found)
    for name in content_header.COUNTS:  # what the queue writes with each look is no part of it
        headers.pop(name.decode(), None)
    properties = header_values.properties(found)
    properties.pop("delivery_mode", None)
    return DeadLetter(_id(key, found, body), key, body, headers, properties, raw, tag)


def fingerprint(key: bytes, raw: bytes, body: bytes) -> str:
    """Return a UUID for a message, the same for each of its deliveries."""
    try:
        found = content_header.read(raw)
    except content_header.UnreadableContent:
        found = content_header.ContentHeader({}, [], raw)
    return _id(key, found, body)


def _id(key: bytes, found: content_header.ContentHeader, body: bytes) -> str:
    """Return the same at each look, though the queue counts them and may write the headers in another order."""
    parts = sorted((name, part) for name, part in found.parts.items() if name != "headers")
    entries = [each for each in found.entries if each.name not in content_header.COUNTS]
    headers = sorted(found.table[each.start : each.end] for each in entries)
    return str(UUID(bytes=hashlib.sha256(repr((key, parts, headers)).encode() + body).digest()[:16]))
