"""Detect duplicate trigger messages, and count redeliveries."""

from collections.abc import Collection, Iterable
from hashlib import blake2b
from uuid import UUID

from scheduler.postgres.claims import array
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

TriggerMessage = tuple[str, str]  # the job's id, and the digest of the message_id


def digest(*parts: bytes) -> str:
    """Return a hash of a message in the notation of a UUID."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return str(UUID(bytes=hashed.digest()))


def known_triggers(cursor: Cursor, messages: Collection[TriggerMessage]) -> set[TriggerMessage]:
    """Return the messages that are already stored."""
    cursor.execute(query("duplicates/find_triggers"), _arrays(messages))
    return {(job_id, message) for job_id, message in cursor.fetchall()}


def remember_triggers(cursor: Cursor, messages: Collection[TriggerMessage]) -> None:
    """Store messages of triggers that were accepted in this transaction."""
    cursor.execute(query("duplicates/insert_triggers"), _arrays(messages))


def _arrays(messages: Collection[TriggerMessage]) -> dict[str, str]:
    jobs, digests = zip(*messages, strict=True)
    return {"jobs": array(jobs), "messages": array(digests)}


def count_redeliveries(cursor: Cursor, messages: Iterable[str]) -> dict[str, int]:
    """Increment the messages' redelivery counts and return them."""
    cursor.execute(query("duplicates/count_redeliveries"), {"messages": array(messages)})
    return dict(cursor.fetchall())


def forget_redeliveries(cursor: Cursor, messages: Iterable[str]) -> None:
    """Delete the counts of handled messages."""
    cursor.execute(query("duplicates/delete_redeliveries"), {"messages": array(messages)})
