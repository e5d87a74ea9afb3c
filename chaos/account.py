"""Compares what was asked with what came, event by event."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from math import inf
from typing import Any

from chaos.load import Books

Sql = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Result:
    """The line of one fault in the table."""

    fault: str
    title: str
    requests: int = 0
    expected: int = 0
    received: int = 0
    lost: int = 0
    early: int = 0
    duplicates: int = 0
    redelivered: int = 0
    uncancelled: int = 0
    unstored: int = 0
    longest_gap: float = 0.0
    usual_gap: float = 0.0
    longest_takeover: float = 0.0
    slowest_command: float = 0.0
    host_delay: float = 0.0
    recovered: bool = True
    seconds: float = 0.0
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures and not (self.lost or self.early or self.uncancelled or self.unstored)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def from_dict(record: dict[str, Any]) -> Result:
    """Read a line that was written before."""
    return Result(**{each.name: record[each.name] for each in fields(Result) if each.name in record})


def settled(books: Books, sql: Sql) -> bool:
    """Tell whether every event that must come has come."""
    return not _lost(books, *_expected(books, sql))


def fill(result: Result, books: Books, sql: Sql) -> None:
    """Reckon every number of the table."""
    due, spared = _expected(books, sql)
    events = list(books.events)  # some may still be coming
    came = Counter((event.job_id, event.due_at) for event in events if event.job_id in books.asked)
    emissions = {(event.event_id, event.emitted_at) for event in events}
    ours = [event for event in events if event.job_id in books.asked]
    late = sorted(lateness(books))
    result.requests = books.sent
    result.expected = sum(map(len, due.values()))
    result.received = len(came)
    result.lost = len(_lost(books, due, spared))
    result.early = sum(e.emitted_at < e.due_at or e.received_at < e.due_at for e in events) + books.unbooked_early
    result.duplicates = len(emissions) - len({event.event_id for event in events})
    result.redelivered = len(events) - len(emissions)
    result.longest_gap = round(max(late, default=0.0), 3)
    result.usual_gap = round(late[len(late) // 2], 4) if late else 0.0
    result.uncancelled = sum(e.job_id in spared and e.emitted_at > spared[e.job_id] for e in ours)
    unknown = [key for key in came if key[0] in due and key[1] not in due[key[0]]]
    if unknown:
        result.failures.append(f"{len(unknown)} events for instants that nobody asked for")
    per_identity = Counter((event.job_id, event.due_at) for event in _first(events))
    if per_identity and max(per_identity.values()) > 1:
        result.failures.append("one occurrence came under two event_ids")
    stored = dict(sql("SELECT id::text, extract(epoch FROM created_at)::float8 FROM jobs"))
    result.unstored = sum(each.confirmed and each.id not in stored for each in books.asked.values())
    ages = [stored[each.id] - each.sent_at for each in books.asked.values() if each.sent_at and each.id in stored]
    result.slowest_command = round(max(ages, default=0.0), 3)
    result.longest_takeover = round(max(lateness(books, stored), default=0.0), 3)
    waited = [each.sent_at - each.asked_at for each in books.asked.values() if each.sent_at and each.asked_at]
    result.host_delay = round(max(waited, default=0.0), 3)


def lateness(
    books: Books, stored: Mapping[str, float] | None = None, *, since: float = 0.0, until: float = inf
) -> list[float]:
    """Return the seconds by which each event due between two times came late, at its first arrival.

    An event is not late for as long as its request has not been sent: on a busy machine the host itself may be
    behind with what it asks for. With `stored`, the times when rows came into being, it is not late before its
    row was there either: what is left is the time that a row was due and nobody emitted it.
    """
    late = []
    for event in _first(list(books.events)):
        asked = books.asked.get(event.job_id)
        if asked is None or not since <= event.due_at.timestamp() <= until:
            continue
        possible = max(event.due_at.timestamp(), asked.sent_at or 0.0, (stored or {}).get(event.job_id, 0.0))
        late.append(max(0.0, event.received_at.timestamp() - possible))
    return late


def share(values: Sequence[float], part: float) -> float:
    """Return the value that `part` of all do not exceed; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def _expected(books: Books, sql: Sql) -> tuple[dict[str, set[Any]], dict[str, Any]]:
    """Return which instants each job must emit, and when the cancel of each spared job was committed.

    What was claimed before that may have been emitted; what was emitted after it must not have been.
    """
    spared = dict(sql("SELECT id::text, pg_xact_commit_timestamp(xmin) FROM jobs WHERE status = 'cancelled'"))
    due = {
        each.id: set(each.expected) for each in list(books.asked.values())
        if each.confirmed and each.id not in spared
    }
    return due, spared


def _lost(books: Books, due: dict[str, set[Any]], _: dict[str, Any]) -> set[tuple[str, Any]]:
    came = {(event.job_id, event.due_at) for event in list(books.events)}
    return {(job_id, at) for job_id, instants in due.items() for at in instants} - came


def _first(events: list[Any]) -> list[Any]:
    """The first arrival of each event."""
    seen: dict[str, Any] = {}
    for event in events:
        seen.setdefault(event.event_id, event)
    return list(seen.values())
