"""Delayed messages whose time has come: claimed, and deleted once they are out."""

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

CLASSES = 1  # their priority is for those who receive them
COLUMNS = names(DelayedMessage)
# Most are looked at when they are due: a second timestamp would only be written and read for nothing.
_RETURNED = {"wake_at": "nullif(sized.wake_at, sized.due_at)"}
CLAIM = query(
    "delayed/claim", selected=", ".join(COLUMNS),
    returned=", ".join(_RETURNED.get(name, f"sized.{name}") for name in COLUMNS),
    most_bytes=str(MAX_CLAIM_BYTES),
)


class PostponedMessage(NamedTuple):
    """A message that the broker did not take, in how many seconds it is tried again, and why."""

    id: int
    seconds: float
    problem: str
    unroutable: bool


@dataclass(slots=True)
class DelayedSettlement:
    """What became of each claimed message."""

    done: list[int] = field(default_factory=list)
    postponed: list[PostponedMessage] = field(default_factory=list)


def claim(session: ClaimSession, limit: int, since: Sequence[datetime] = (LONG_AGO,)) -> Claim[DelayedMessage]:
    """Lock the messages that are due; where there are none, nothing stays open."""
    rows = session.claim(KIND, CLAIM, *since, limit)
    claimed_at, seconds_to_next, locked = rows[0][len(COLUMNS) :]
    messages = [_read(row) for row in rows if row[0] is not None]
    if not messages:
        session.release()
        return Claim([], claimed_at, seconds_to_next, tuple(since))
    full = locked >= limit or locked > len(messages)
    size = sum([len(each.body) + len(each.properties) for each in messages])
    left_from = messages[-1].wake_at if locked > len(messages) else None
    resume_from = (messages[-1].wake_at,)
    return Claim(messages, claimed_at, seconds_to_next, resume_from, full, size=size, left_from=left_from)


def _read(row: Sequence[Any]) -> DelayedMessage:
    number, exchange, routing_key, properties, body, due_at, wake_at, retries, unroutable_at, problem, *_ = row
    if exchange is None:
        routing_key = properties = body = b""
    # psycopg2's views are of single characters.
    return DelayedMessage(
        number, exchange, bytes(routing_key), bytes(properties), bytes(body), due_at, wake_at or due_at, retries,
        unroutable_at, problem,
    )


def settle(session: ClaimSession, settlement: DelayedSettlement) -> None:
    """Write down what became of the claimed messages and let go of them."""
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
        "unroutable": array("1" if each else "0" for each in unroutable),
    }
