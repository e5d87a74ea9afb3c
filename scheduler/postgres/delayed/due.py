"""Claim due delayed messages, and delete them after they were published."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from scheduler.domain.delayed.message import DelayedMessage
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession, array
from scheduler.postgres.delayed.store import KIND
from scheduler.postgres.large_values import MAX_CLAIM_BYTES
from scheduler.postgres.row_text import names
from scheduler.resources import query

CLASSES = 1  # the priority of a delayed message is for its receivers
COLUMNS = names(DelayedMessage)
# For most messages wake_at is due_at: do not transfer it twice.
_RETURNED = {"wake_at": "nullif(sized.wake_at, sized.due_at)"}
CLAIM = query(
    "delayed/claim", selected=", ".join(COLUMNS),
    returned=", ".join(_RETURNED.get(name, f"sized.{name}") for name in COLUMNS),
    most_bytes=str(MAX_CLAIM_BYTES),
)


class PostponedMessage(NamedTuple):
    """A message that the broker did not accept, with the seconds until the retry and the reason."""

    id: int
    seconds: float
    problem: str
    unroutable: bool


@dataclass(slots=True)
class DelayedSettlement:
    """The claimed messages by outcome."""

    done: list[int] = field(default_factory=list)
    postponed: list[PostponedMessage] = field(default_factory=list)


def claim(session: ClaimSession, limit: int, since: Sequence[datetime] = (LONG_AGO,)) -> Claim[DelayedMessage]:
    """Lock due messages; if there are none, end the transaction."""
    rows = session.claim(KIND, CLAIM, *since, limit)
    claimed_at, seconds_to_next, locked = rows[0][len(COLUMNS) :]
    messages = [_read(row) for row in rows if row[0] is not None]
    if not messages:
        session.release()
        return Claim([], claimed_at, seconds_to_next, tuple(since))
    full = locked >= limit or locked > len(messages)
    size = sum([len(message.body) + len(message.properties) for message in messages])
    session.fetched(size)
    left_from = messages[-1].wake_at if locked > len(messages) else None
    resume_from = (messages[-1].wake_at,)
    return Claim(messages, claimed_at, seconds_to_next, resume_from, full, size=size, left_from=left_from)


def _read(row: Sequence[Any]) -> DelayedMessage:
    number, exchange, routing_key, properties, body, due_at, wake_at, retries, unroutable_at, problem, *_ = row
    if exchange is None:
        routing_key = properties = body = b""
    # psycopg2 returns memoryviews.
    return DelayedMessage(
        number, exchange, bytes(routing_key), bytes(properties), bytes(body), due_at, wake_at or due_at, retries,
        unroutable_at, problem,
    )


def settle(session: ClaimSession, settlement: DelayedSettlement) -> None:
    """Store the outcomes of the claimed messages and release them."""
    statements: list[tuple[str, dict[str, Any]]] = []
    if settlement.done:
        statements.append((query("delayed/delete"), {"ids": array(map(str, settlement.done))}))
    if settlement.postponed:
        statements.append((query("delayed/postpone"), _postponed(settlement.postponed)))
    session.settle(statements)


def _postponed(messages: Sequence[PostponedMessage]) -> dict[str, Any]:
    ids, delays, problems, unroutable = zip(*messages, strict=True)
    return {
        "ids": array(map(str, ids)), "delays": array(map(str, delays)), "problems": list(problems),
        "unroutable": array("1" if flag else "0" for flag in unroutable),
    }
