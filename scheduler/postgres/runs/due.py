"""Claim due runs, record new ones and settle them, in a producer's transaction."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from scheduler.domain.runs.run import Origin, Run, RunStatus
from scheduler.postgres.claims import ClaimSession, Statement, array
from scheduler.postgres.holds import RELEASE
from scheduler.postgres.priority_classes import ClassedClaim
from scheduler.postgres.row_text import copy_line, copy_text
from scheduler.postgres.runs.columns import (
    CHANGING,
    KEPT,
    LARGE_VALUES,
    SELECTED,
    SELECTED_OF_DUE,
    STORED,
    read,
    write_new,
)
from scheduler.postgres.runs.store import KIND, REPLACE, UPDATE, records
from scheduler.postgres.worker_rows import LIVE_OFFERS
from scheduler.resources import query

POSTPONED_SECONDS = 5.0
CLAIM = ClassedClaim(
    KIND, query("claims/claim", selected=SELECTED_OF_DUE, table="runs", claimable="true"), read,
    LARGE_VALUES,
)
claim = CLAIM.claim
_LOCK = query("runs/lock", selected=SELECTED)
_INSERT_NEW = query("runs/insert_new", columns=", ".join(STORED))
_ARCHIVE = query("runs/archive", kept=", ".join(KEPT))


@dataclass(slots=True)
class RunSettlement:
    """The claimed runs by outcome."""

    changed: list[Run] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)  # and the end was published
    forgotten: list[str] = field(default_factory=list)  # runs with results only
    released: list[str] = field(default_factory=list)  # jobs whose run has ended: they may be held
    postponed: list[str] = field(default_factory=list)  # rejected by the broker, or undecided


def settle(session: ClaimSession, settlement: RunSettlement) -> None:
    """Store the outcomes of the claimed runs, release them, and release the jobs that waited for them."""
    statements: list[Statement] = []
    if settlement.changed:
        statements.append((UPDATE, {"runs": records(settlement.changed, CHANGING)}))
    if settlement.ended:
        statements.append((_ARCHIVE, {"ids": array(settlement.ended)}))
    if settlement.forgotten:
        statements.append((query("runs/delete"), {"ids": array(settlement.forgotten)}))
    if settlement.postponed:
        values = {"ids": array(settlement.postponed), "seconds": POSTPONED_SECONDS}
        statements.append((query("runs/postpone"), values))
    # After the commit: it sees holds committed earlier, and later holds see that the run has ended.
    release = [(RELEASE, {"ids": array(settlement.released)})] if settlement.released else []
    session.settle(statements, after=release)


def live_offers(session: ClaimSession) -> frozenset[str]:
    """Return the offers of live workers."""
    return frozenset(offer for _, offers in session.query(*LIVE_OFFERS) for offer in offers)


def open_runs_of_jobs(session: ClaimSession, limits: Mapping[str, int]) -> dict[str, str]:
    """Return one open run for each job that has as many as its limit, by job id."""
    values = {"ids": array(limits), "limits": array(map(str, limits.values()))}
    return {job_id: run for job_id, run in session.query(query("runs/open_of_jobs"), values)}  # noqa: C416 - tuples of any length to mypy


def record(session: ClaimSession, runs: Sequence[Run]) -> dict[str, Run]:
    """Insert runs in the claim's transaction; return existing ones, locked.

    That is rare: their results arrived after a producer died between publishing the event and committing the run.
    """
    ordered = sorted(runs, key=lambda run: run.event_id)
    columns = write_new(ordered)
    if session.copy(_copy(tuple(columns)), io.StringIO(copy_text(tuple(columns.values())))):
        return {}
    session.before_waiting()
    recorded = {event_id for event_id, in session.query(_INSERT_NEW, {"runs": records(ordered, STORED)})}
    others = [run.event_id for run in ordered if run.event_id not in recorded]
    return {run.event_id: run for run in map(read, session.query(_LOCK, {"ids": array(others)}))}


@lru_cache(maxsize=256)  # runs use few sets of columns
def _copy(names: tuple[str, ...]) -> str:
    return query("runs/copy", columns=", ".join(names))


class EmittedOccurrence(NamedTuple):
    """An emitted occurrence of an untracked job, for the history."""

    event_id: str
    job_id: str
    job_type: str
    due_at: datetime
    origin: Origin
    tenant: str


def record_emitted(
    session: ClaimSession, emitted: Sequence[EmittedOccurrence], emitted_at: datetime, confirmed_at: datetime,
    replica: str | None = None,
) -> None:
    """Insert emitted occurrences into the history."""
    sent, confirmed = emitted_at.isoformat(), confirmed_at.isoformat()
    lines = "".join(copy_line((
        run.event_id, RunStatus.EMITTED, "1", run.job_id, run.job_type, run.due_at.isoformat(), run.origin,
        sent, confirmed, run.tenant, replica,
    )) for run in emitted)
    session.copy(query("runs/copy_emitted"), io.StringIO(lines))


def merge(session: ClaimSession, runs: Sequence[Run]) -> None:
    """Replace the stored rows of these runs."""
    session.query(REPLACE, {"runs": records(runs, STORED)})
