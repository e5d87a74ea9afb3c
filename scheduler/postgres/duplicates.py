"""Messages that may be delivered more than once: triggers by their message_id, and counts of redeliveries."""

from collections.abc import Collection, Iterable
from hashlib import blake2b
from uuid import UUID

from scheduler.postgres.claims import array
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

TriggerMessage = tuple[str, str]  # the job's id, and the digest of the message_id


def digest(*parts: bytes) -> str:
    """Return a short name for a message, as Postgres writes a UUID."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return str(UUID(bytes=hashed.digest()))


def known_triggers(cursor: Cursor, messages: Collection[TriggerMessage]) -> set[TriggerMessage]:
    """Return those of these messages that were stored before."""
    cursor.execute(query("duplicates/find_triggers"), _arrays(messages))
    return {(job_id, message) for job_id, message in cursor.fetchall()}


def remember_triggers(cursor: Cursor, messages: Collection[TriggerMessage]) -> None:
    """Remember messages that are stored in this transaction."""
    cursor.execute(query("duplicates/insert_triggers"), _arrays(messages))


def _arrays(messages: Collection[TriggerMessage]) -> dict[str, str]:
    jobs, named = zip(*messages, strict=True)
    return {"jobs": array(jobs), "messages": array(named)}


def count_redeliveries(cursor: Cursor, messages: Iterable[str]) -> dict[str, int]:
    """Count each message once more, and return how often it was redelivered."""
    cursor.execute(query("duplicates/count_redeliveries"), {"messages": array(messages)})
    return dict(cursor.fetchall())


def forget_redeliveries(cursor: Cursor, messages: Iterable[str]) -> None:
    """Forget messages that were handled."""
    cursor.execute(query("duplicates/delete_redeliveries"), {"messages": array(messages)})
