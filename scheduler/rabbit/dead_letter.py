"""Dead letters in scheduler_dead: their reason, source, and original properties."""

import hashlib
import json
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
from scheduler.rabbit.message_forwarding import BODY_CUT, COPIES, DEATH, ORIGINAL_EXCHANGE, OUR_HEADERS

_DELAYED_HEADERS = frozenset((b"x-attempts", b"x-due-at"))  # next to our x-dead-reason
_BROKER_HEADERS = frozenset((
    DEATH, *content_header.COUNTS, b"x-first-death-exchange", b"x-first-death-queue", b"x-first-death-reason",
    b"x-last-death-exchange", b"x-last-death-queue", b"x-last-death-reason",
))
_ENTRIES = {INBOX_QUEUE: COMMANDS_EXCHANGE, RESULTS_QUEUE: COMMANDS_EXCHANGE, DELAY_QUEUE: DELAY_EXCHANGE}
_PERSISTENT = b"\x02"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in scheduler_dead."""

    id: str  # stable while the message is in the queue
    key: bytes
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    raw: bytes  # encoded properties
    tag: int
    size: int  # of the body; a page has only its beginning

    @property
    def routing_key(self) -> str:
        """The routing key as text."""
        return header_values.as_text(self.key)

    @property
    def reason(self) -> str:
        """The reason for dead-lettering."""
        if death := self._death:
            return f"{death.get('reason')} in {death.get('queue')}"
        return self._header("x-rejected-reason", "x-dead-reason") or "unknown: the message has no reason header"

    @property
    def at(self) -> str | None:
        """The time of dead-lettering, if a header has it."""
        if death := self._death:
            time = death.get("time")
            return f"{time:%Y-%m-%dT%H:%M:%SZ}" if isinstance(time, datetime) else None
        return self._header("x-rejected-at", "x-dead-at")

    @property
    def position(self) -> tuple[str, str]:
        """The sort key in lists."""
        return self.at or "", self.id

    @property
    def is_dead_run(self) -> bool:
        """Whether it is the event of a dead run: replaying it retries the run."""
        of_run = "x-dead-reason" in self.headers and ORIGINAL_EXCHANGE not in self.headers
        return of_run and not self._death and self.routing_key == "due"

    @property
    def event_id(self) -> str | None:
        """The run of a dead run's event; None for other letters."""
        try:
            body = json.loads(self.body) if self.is_dead_run else None
            return str(UUID(body["event_id"])) if isinstance(body, dict) else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    @property
    def job_type(self) -> str | None:
        """The job type in its body, if there is one."""
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        job_type = body.get("job_type") if isinstance(body, dict) else None
        return job_type if isinstance(job_type, str) else None

    @property
    def body_was_cut(self) -> bool:
        """Whether the body is incomplete."""
        return BODY_CUT in self.headers and not self._death

    @property
    def user_id(self) -> str | None:
        """The broker user that published it, as verified by the broker."""
        if self._death:
            user_id = self.properties.get("user_id")
            return user_id if isinstance(user_id, str) else None
        return self._header("x-original-user-id")

    @property
    def exchange(self) -> str | None:
        """The exchange that it was published to."""
        if death := self._death:
            return _source_exchange(death.get("queue"), death.get("exchange"))
        is_command = self.routing_key in COMMAND_MODELS or self.routing_key in RESULT_MODELS
        default = COMMANDS_EXCHANGE if is_command and "x-rejected-reason" in self.headers else None
        return self._header(ORIGINAL_EXCHANGE) or default

    @property
    def _death(self) -> Mapping[str, Any]:
        """The broker's record of dead-lettering; empty if the sidecar dead-lettered it."""
        deaths = self.headers.get(DEATH.decode())
        return deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}

    def _header(self, *names: str) -> str | None:
        return next((value for name in names if isinstance(value := self.headers.get(name), str)), None)

    def original_properties(self) -> bytes:
        """Return its encoded properties before dead-lettering, but persistent."""
        content = content_header.read(self.raw)
        for name in ("user_id", "expiration"):  # the broker would reject the former; the latter has expired
            content.parts.pop(name, None)
        content.parts["delivery_mode"] = _PERSISTENT
        if self._death:
            return content.encode(drop=_BROKER_HEADERS | COPIES)  # all other headers are the publisher's
        expiration = self._header("x-original-expiration")
        if expiration is not None and len(expiration.encode()) <= content_header.MAX_SHORT:
            content.parts["expiration"] = content_header.short(expiration)
        delayed = _DELAYED_HEADERS if "x-dead-reason" in self.headers else frozenset[bytes]()
        return content.encode(drop=_BROKER_HEADERS | COPIES | OUR_HEADERS | delayed)


def _source_exchange(queue: Any, exchange: Any) -> str | None:
    """Return the exchange that feeds a queue.

    RabbitMQ 3.10 copies the exchange from an x-death header that the publisher wrote for the same queue. Only the
    queue is reliable, so it decides. A message from a queue that is not the sidecar's never becomes a command.
    """
    if isinstance(queue, str):
        if queue in _ENTRIES:
            return _ENTRIES[queue]
        if queue.startswith(delay_queue("")):
            return delay_entry(queue.removeprefix(delay_queue("")))
    return exchange if isinstance(exchange, str) and exchange not in ("", COMMANDS_EXCHANGE) else None


def read(key: bytes, raw: bytes, body: bytes, tag: int) -> DeadLetter:
    """Parse a dead letter; properties that cannot be parsed are empty."""
    try:
        content = content_header.read(raw)
    except content_header.UnreadableContent:
        content = content_header.ContentHeader({}, [], b"")
    headers = header_values.headers(content)
    for name in content_header.COUNTS:  # the queue writes them at entry delivery
        headers.pop(name.decode(), None)
    properties = header_values.properties(content)
    properties.pop("delivery_mode", None)
    return DeadLetter(_id(key, content, body), key, body, headers, properties, raw, tag, len(body))


def fingerprint(key: bytes, raw: bytes, body: bytes) -> str:
    """Return a UUID that is the same for all deliveries of a message."""
    try:
        content = content_header.read(raw)
    except content_header.UnreadableContent:
        content = content_header.ContentHeader({}, [], raw)
    return _id(key, content, body)


def _id(key: bytes, content: content_header.ContentHeader, body: bytes) -> str:
    """Return an id without delivery counts and header order, which change between deliveries."""
    parts = sorted((name, part) for name, part in content.parts.items() if name != "headers")
    entries = [entry for entry in content.entries if entry.name not in content_header.COUNTS]
    headers = sorted(content.table[entry.start : entry.end] for entry in entries)
    return str(UUID(bytes=hashlib.sha256(repr((key, parts, headers)).encode() + body).digest()[:16]))
