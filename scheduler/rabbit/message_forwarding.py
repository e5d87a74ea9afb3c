"""Forward messages unchanged, except for properties that the broker would reject."""

from collections.abc import Collection, Mapping

from scheduler.domain.names import DEAD_EXCHANGE
from scheduler.rabbit import content_header
from scheduler.rabbit.delivery_parser import as_bytes
from scheduler.rabbit.frames import RawMessage, fits

ORIGINAL_EXCHANGE = "x-original-exchange"  # where a replay of the dead letter goes
# Headers that the sidecar sets on dead letters. A publisher's headers with these names are dropped: they would
# decide where a replay goes. So is x-death, the broker's record of dead-lettering.
OUR_HEADERS = frozenset((
    b"x-rejected-reason", b"x-rejected-at", b"x-dead-reason", b"x-dead-at", b"x-original-exchange",
    b"x-original-expiration", b"x-original-user-id", b"x-dropped-headers", b"x-rejected-body-cut",
))
BODY_CUT = "x-rejected-body-cut"  # original size of the body
# RabbitMQ also routes a message by the keys in these headers.
COPIES = frozenset((b"CC", b"BCC"))
DROPPED_HEADERS = b"x-dropped-headers"  # names of headers that did not fit in the frame
_MAX_NAMES_BYTES = 1000
MAX_HEADERS = 256  # of a command's dead letter
DEATH = b"x-death"
_FRAME_BYTES = 40  # of a header frame around the properties, rounded up
_USER_ID = 1 << 4  # in the second byte of the flags
_PERSISTENT = b"\x02"


def forwarded_message(
    exchange: str, routing_key: bytes, properties: bytes, body: bytes, *, user: str, frame_max: int
) -> RawMessage:
    """Return a message to publish. The broker rejects another user's user_id, so it becomes a header."""
    if properties[1] & _USER_ID:
        properties = _without_user(properties, user, frame_max)
    if not fits(properties, frame_max):
        raise ValueError(f"its properties have {len(properties):,} bytes; frame_max is {frame_max:,}")
    return RawMessage(exchange, routing_key, properties, body)


def _without_user(raw: bytes, user: str, frame_max: int) -> bytes:
    content = content_header.read(raw)
    named = content.parts["user_id"][1:]
    if named == user.encode():
        return raw
    moved = content.encode(add={b"x-original-user-id": content_header.text(named)}, without=("user_id",))
    return moved if fits(moved, frame_max) else content.encode(without=("user_id",))


def dead_letter(
    routing_key: str | bytes, properties: bytes, body: bytes, headers: Mapping[str, str | int],
    shrink_to: int | None = None,
) -> RawMessage | None:
    """Return a message for schedule.dead with these additional headers; None if its properties are unreadable.

    It is persistent and does not expire, so that it is not lost. With `shrink_to`, a frame_max, its own
    headers are dropped, those after the first MAX_HEADERS and then the largest first, until it fits.
    """
    try:
        content = content_header.read(properties, None if shrink_to is None else MAX_HEADERS + 1)
    except content_header.UnreadableContent:
        return None
    added = {
        name.encode(): content_header.number(value) if isinstance(value, int) else content_header.text(value)
        for name, value in headers.items()
    }
    if shrink_to is not None and len(content.entries) > MAX_HEADERS:
        content.entries = content.entries[:MAX_HEADERS]
        added[DROPPED_HEADERS] = content_header.text(f"all after the first {MAX_HEADERS}")
    for name in ("expiration", "user_id"):
        if (part := content.parts.get(name)) is not None:
            added[f"x-original-{name.replace('_', '-')}".encode()] = content_header.text(part[1:])
    content.parts["delivery_mode"] = _PERSISTENT
    drop, without = {*OUR_HEADERS, *COPIES, DEATH, *content_header.COUNTS}, ("expiration", "user_id")
    encoded = content.encode(drop=drop, add=added, without=without)
    if shrink_to is not None and not fits(encoded, shrink_to):
        encoded = _shrunk(content, drop, added, without, len(encoded), shrink_to)
    return RawMessage(DEAD_EXCHANGE, as_bytes(routing_key), encoded, body)


def _shrunk(  # noqa: PLR0917 - the parts of the message, and its size limits
    content: content_header.ContentHeader, drop: set[bytes], added: dict[bytes, bytes], without: Collection[str],
    size: int,
    frame_max: int,
) -> bytes:
    """Encode properties without their largest headers, and name the dropped ones in a header."""
    sizes: dict[bytes, int] = {}
    for entry in content.entries:
        if entry.name not in drop and entry.name not in added:
            sizes[entry.name] = sizes.get(entry.name, 0) + entry.end - entry.start
    names: list[str] = []
    room = frame_max - _FRAME_BYTES - _MAX_NAMES_BYTES - len(DROPPED_HEADERS)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if size <= room:
            break
        size -= sizes[name]
        names.append(f"{name.decode(errors='replace')} ({sizes[name]:,} bytes)")
        drop = drop | {name}
    text = ", ".join(names).encode()[:_MAX_NAMES_BYTES].decode(errors="ignore")
    return content.encode(drop=drop, add=added | {DROPPED_HEADERS: content_header.text(text)}, without=without)


def dead_letter_that_fits(
    routing_key: bytes, properties: bytes, body: bytes, headers: Mapping[str, str | int], frame_max: int
) -> RawMessage:
    """Return the dead letter, without the additional headers if they do not fit in its frame."""
    for added in (headers, {}):
        dead = dead_letter(routing_key, properties, body, added)
        if dead is not None and fits(dead.properties, frame_max):
            return dead
    raise ValueError("its properties are unreadable or exceed a frame")
