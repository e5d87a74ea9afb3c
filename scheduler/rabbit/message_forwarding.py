"""Messages that pass through us: as they came, but for what the broker would not take from us."""

from collections.abc import Collection, Mapping

from scheduler.domain.names import DEAD_EXCHANGE
from scheduler.rabbit import content_header
from scheduler.rabbit.delivery_parser import as_bytes
from scheduler.rabbit.frames import RawMessage, fits

ORIGINAL_EXCHANGE = "x-original-exchange"  # of a dead letter: where it would go when it is sent again
# What a dead letter of ours says of itself. Its publisher's own words under these names are not kept, or they
# would decide where it is sent again; nor is an x-death, which tells what the broker itself has moved.
SAID = frozenset((
    b"x-rejected-reason", b"x-rejected-at", b"x-dead-reason", b"x-dead-at", b"x-original-exchange",
    b"x-original-expiration", b"x-original-user-id", b"x-dropped-headers", b"x-rejected-body-cut",
))
BODY_CUT = "x-rejected-body-cut"  # of a dead letter: the size of the body that it had
# RabbitMQ routes a message also by the keys in these headers.
COPIES = frozenset((b"CC", b"BCC"))
DROPPED_HEADERS = b"x-dropped-headers"  # of a dead letter: the names of headers that its frame has no room for
_NAMED_BYTES = 1000  # of those names
DEATH = b"x-death"
_FRAME_BYTES = 40  # of a header frame beside the properties, rounded up
_USER_ID = 1 << 4  # among the flags, which are the first two bytes
_PERSISTENT = b"\x02"


def forwarded_message(
    exchange: str, routing_key: bytes, properties: bytes, body: bytes, *, user: str, frame_max: int
) -> RawMessage:
    """Return a message on its way out; the broker refuses a user_id that is not ours, so that becomes a header."""
    if properties[1] & _USER_ID:
        properties = _without_user(properties, user, frame_max)
    if not fits(properties, frame_max):
        raise ValueError(f"its properties have {len(properties):,} bytes, and a frame {frame_max:,}")
    return RawMessage(exchange, routing_key, properties, body)


def _without_user(raw: bytes, user: str, frame_max: int) -> bytes:
    found = content_header.read(raw)
    named = found.parts["user_id"][1:]
    if named == user.encode():
        return raw
    moved = found.written(add={b"x-original-user-id": content_header.text(named)}, without=("user_id",))
    return moved if fits(moved, frame_max) else found.written(without=("user_id",))


def dead_letter(
    routing_key: str | bytes, properties: bytes, body: bytes, headers: Mapping[str, str | int],
    shrink_to: int | None = None,
) -> RawMessage | None:
    """Return a message for schedule.dead with these headers beside its own; None if its own cannot be read.

    It is persistent and does not expire, or it would be lost after all. With `shrink_to`, a frame_max, its own
    headers are dropped, the largest first, until it fits.
    """
    try:
        found = content_header.read(properties)
    except content_header.UnreadableContent:
        return None
    added = {
        name.encode(): content_header.number(value) if isinstance(value, int) else content_header.text(value)
        for name, value in headers.items()
    }
    for name in ("expiration", "user_id"):
        if (part := found.parts.get(name)) is not None:
            added[f"x-original-{name.replace('_', '-')}".encode()] = content_header.text(part[1:])
    found.parts["delivery_mode"] = _PERSISTENT
    drop, without = {*SAID, *COPIES, DEATH, *content_header.COUNTS}, ("expiration", "user_id")
    written = found.written(drop=drop, add=added, without=without)
    if shrink_to is not None and not fits(written, shrink_to):
        written = _shrunk(found, drop, added, without, len(written), shrink_to)
    return RawMessage(DEAD_EXCHANGE, as_bytes(routing_key), written, body)


def _shrunk(  # noqa: PLR0917 - what is written, and how far it is to shrink
    found: content_header.ContentHeader, drop: set[bytes], added: dict[bytes, bytes], without: Collection[str],
    size: int,
    frame_max: int,
) -> bytes:
    """Write properties without the largest of their headers, and name those."""
    sizes: dict[bytes, int] = {}
    for entry in found.entries:
        if entry.name not in drop and entry.name not in added:
            sizes[entry.name] = sizes.get(entry.name, 0) + entry.end - entry.start
    names: list[str] = []
    room = frame_max - _FRAME_BYTES - _NAMED_BYTES - len(DROPPED_HEADERS)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if size <= room:
            break
        size -= sizes[name]
        names.append(f"{name.decode(errors='replace')} ({sizes[name]:,} bytes)")
        drop = drop | {name}
    text = ", ".join(names).encode()[:_NAMED_BYTES].decode(errors="ignore")
    return found.written(drop=drop, add=added | {DROPPED_HEADERS: content_header.text(text)}, without=without)


def dead_letter_that_fits(
    routing_key: bytes, properties: bytes, body: bytes, headers: Mapping[str, str | int], frame_max: int
) -> RawMessage:
    """Return that dead letter, without the further headers where its frame has no room for them."""
    for added in (headers, {}):
        dead = dead_letter(routing_key, properties, body, added)
        if dead is not None and fits(dead.properties, frame_max):
            return dead
    raise ValueError("its properties cannot be read, or do not go into a frame")
