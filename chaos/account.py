"""Compare requested with received events."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from math import inf
from typing import Any

from chaos.load import HostRecords

Sql = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Result:
    """One fault's row in the table."""

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
    """Return a stored result."""
    return Result(**{item.name: record[item.name] for item in fields(Result) if item.name in record})


def all_received(records: HostRecords, sql: Sql) -> bool:
    """Return whether every expected event was received."""
    return not _lost(records, *_expected(records, sql))


def fill(result: Result, records: HostRecords, sql: Sql) -> None:
    """Compute every number of the table."""
    due, cancelled_at = _expected(records, sql)
    events = list(records.events)  # more may still arrive
    received = Counter((event.job_id, event.due_at) for event in events if event.job_id in records.jobs)
    emissions = {(event.event_id, event.emitted_at) for event in events}
    ours = [event for event in events if event.job_id in records.jobs]
    late = sorted(lateness(records))
    result.requests = records.sent
    result.expected = sum(map(len, due.values()))
    result.received = len(received)
    result.lost = len(_lost(records, due, cancelled_at))
    result.early = sum(e.emitted_at < e.due_at or e.received_at < e.due_at for e in events) + records.counted_only_early
    result.duplicates = len(emissions) - len({event.event_id for event in events})
    result.redelivered = len(events) - len(emissions)
    result.longest_gap = round(max(late, default=0.0), 3)
    result.usual_gap = round(late[len(late) // 2], 4) if late else 0.0
    result.uncancelled = sum(e.job_id in cancelled_at and e.emitted_at > cancelled_at[e.job_id] for e in ours)
    unknown = [key for key in received if key[0] in due and key[1] not in due[key[0]]]
    if unknown:
        result.failures.append(f"{len(unknown)} events for instants that were not requested")
    per_identity = Counter((event.job_id, event.due_at) for event in _first(events))
    if per_identity and max(per_identity.values()) > 1:
        result.failures.append("one occurrence has two event_ids")
    stored = dict(sql("SELECT id::text, extract(epoch FROM created_at)::float8 FROM jobs"))
    result.unstored = sum(job.confirmed and job.id not in stored for job in records.jobs.values())
    ages = [stored[job.id] - job.sent_at for job in records.jobs.values() if job.sent_at and job.id in stored]
    result.slowest_command = round(max(ages, default=0.0), 3)
    result.longest_takeover = round(max(lateness(records, stored), default=0.0), 3)
    waited = [job.sent_at - job.requested_at for job in records.jobs.values() if job.sent_at and job.requested_at]
    result.host_delay = round(max(waited, default=0.0), 3)


def lateness(
    records: HostRecords, stored: Mapping[str, float] | None = None, *, since: float = 0.0, until: float = inf
) -> list[float]:
    """Return the lateness in seconds of each event due between two times, at its first arrival.

    An event is not late before its request was sent: on a busy machine the host itself may be behind. With
    `stored`, the creation times of rows, it is not late before its row existed either. The rest is the time for
    which a stored row was due and not emitted.
    """
    late = []
    for event in _first(list(records.events)):
        job = records.jobs.get(event.job_id)
        if job is None or not since <= event.due_at.timestamp() <= until:
            continue
        possible = max(event.due_at.timestamp(), job.sent_at or 0.0, (stored or {}).get(event.job_id, 0.0))
        late.append(max(0.0, event.received_at.timestamp() - possible))
    return late


def share(values: Sequence[float], part: float) -> float:
    """Return the quantile `part` of the values, or 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def _expected(records: HostRecords, sql: Sql) -> tuple[dict[str, set[Any]], dict[str, Any]]:
    """Return the expected instants by job, and the commit time of each cancel.

    An event claimed before that time may be emitted; no event may be emitted after it.
    """
    cancelled_at = dict(sql("SELECT id::text, pg_xact_commit_timestamp(xmin) FROM jobs WHERE status = 'cancelled'"))
    due = {
        job.id: set(job.expected) for job in list(records.jobs.values())
        if job.confirmed and job.id not in cancelled_at
    }
    return due, cancelled_at


def _lost(records: HostRecords, due: dict[str, set[Any]], _: dict[str, Any]) -> set[tuple[str, Any]]:
    received = {(event.job_id, event.due_at) for event in list(records.events)}
    return {(job_id, at) for job_id, instants in due.items() for at in instants} - received


def _first(events: list[Any]) -> list[Any]:
    """Return the first arrival of each event."""
    seen: dict[str, Any] = {}
    for event in events:
        seen.setdefault(event.event_id, event)
    return list(seen.values())
