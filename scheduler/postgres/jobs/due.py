"""Claim due jobs, and settle them after their events were published."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from scheduler.domain.jobs.adjusted import AdjustedState
from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence import tzdata_version
from scheduler.domain.runs.run import Run
from scheduler.postgres.claims import ClaimSession, array, ctid_array
from scheduler.postgres.holds import RELEASE_EXPIRED
from scheduler.postgres.jobs.columns import LARGE_VALUES, SELECTED_OF_DUE, read
from scheduler.postgres.jobs.replan import number_text, spans_text
from scheduler.postgres.priority_classes import ClassedClaim
from scheduler.postgres.runs.columns import STORED
from scheduler.postgres.runs.store import REPLACE, records
from scheduler.resources import query

KIND = "jobs"


def make_claim(zone_version: str, left_zones: Collection[str] = ()) -> ClassedClaim[Job]:
    """Return the claim of a process with this zone data; it leaves jobs in `left_zones` to newer data."""
    claimable = "status = 'pending'"
    if left_zones:
        zones = array(sorted(left_zones))
        claimable += f" AND NOT (timezone = ANY ('{zones}') AND zone_version > '{zone_version}')"
    selected = SELECTED_OF_DUE.replace("{zone_version}", zone_version)
    statement = query("claims/claim", selected=f"{selected}, ctid::text AS place", table="jobs",
                      claimable=claimable)
    # A session prepares each claim under its own name.
    name = f"{KIND}_{len(left_zones)}" if left_zones else KIND
    return ClassedClaim(name, statement, read, LARGE_VALUES, placed=True)


CLAIM = make_claim(tzdata_version())
claim = CLAIM.claim


class SkippedOccurrences(NamedTuple):
    """A job that skipped occurrences or folded them into one, with its next occurrence."""

    id: str
    following: datetime | None
    emitted: bool
    folded_into: datetime | None


class AdjustedOccurrence(NamedTuple):
    """A job with a calendar, a window or jitter: the due time of the emitted occurrence, and its new state."""

    id: str
    due_at: datetime | None
    state: AdjustedState


class FailedEmission(NamedTuple):
    """A job whose event was not delivered, and the seconds until the retry; None for at once."""

    id: str
    seconds: float | None
    due_at: datetime | None
    problem: str


@dataclass(slots=True)
class JobSettlement:
    """The claimed jobs by outcome."""

    emitted_at: datetime
    confirmed_at: datetime
    done: list[str] = field(default_factory=list)  # the last occurrence was emitted
    moved: list[tuple[str, str]] = field(default_factory=list)  # one occurrence was emitted; with the next as text
    passed: list[SkippedOccurrences] = field(default_factory=list)
    adjusted: list[AdjustedOccurrence] = field(default_factory=list)
    waiting: list[tuple[str, datetime]] = field(default_factory=list)  # until the window opens
    triggered: list[str] = field(default_factory=list)
    failed: list[FailedEmission] = field(default_factory=list)
    skipped_triggers: list[str] = field(default_factory=list)  # a trigger was skipped
    held: list[tuple[str, str]] = field(default_factory=list)  # waits for an open run
    unrecorded: list[str] = field(default_factory=list)  # runs whose event was not emitted
    unmerged: list[Run] = field(default_factory=list)  # the same, for runs with early results
    unoffered: list[str] = field(default_factory=list)  # runs whose event no queue took in time: they expire now


def settle(session: ClaimSession, settlement: JobSettlement) -> None:
    """Store the outcomes of the claimed jobs and release them."""
    held = array(job_id for job_id, _ in settlement.held)
    session.settle(
        list(_statements(settlement, session.places)),
        after=[(RELEASE_EXPIRED, {"ids": held})] if settlement.held else [],
    )


def _statements(settlement: JobSettlement, places: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    times = {"emitted_at": settlement.emitted_at, "confirmed_at": settlement.confirmed_at}
    if settlement.done:
        yield query("jobs/settle_done"), times | {"places": ctid_array(places, settlement.done)}
    if settlement.moved:
        ids, texts = zip(*settlement.moved, strict=True)
        yield query("jobs/settle_next"), times | {"places": ctid_array(places, ids), "following": array(texts)}
    if settlement.passed:
        ids, following, emitted, folded_into = zip(*settlement.passed, strict=True)
        yield query("jobs/settle_other"), times | {
            "ids": array(ids), "following": array(map(_moment, following)),
            "emitted": array("1" if confirmed else "0" for confirmed in emitted),
            "folded_into": array(map(_moment, folded_into)),
        }
    if settlement.adjusted:
        yield query("jobs/settle_adjusted"), times | _adjusted(settlement.adjusted)
    if settlement.waiting:
        ids, until = zip(*settlement.waiting, strict=True)
        yield query("jobs/settle_waiting"), {"ids": array(ids), "until": array(map(_moment, until))}
    if settlement.triggered:
        yield query("jobs/settle_triggered"), times | {"ids": array(settlement.triggered), "emitted": 1}
    if settlement.skipped_triggers:
        yield query("jobs/settle_triggered"), times | {"ids": array(settlement.skipped_triggers), "emitted": 0}
    if settlement.held:
        ids, runs = zip(*settlement.held, strict=True)
        yield query("jobs/settle_held"), {"ids": array(ids), "event_ids": array(runs)}
    if settlement.unrecorded:
        yield query("runs/delete"), {"ids": array(settlement.unrecorded)}
    if settlement.unoffered:
        yield query("runs/expire_now"), {"ids": array(settlement.unoffered)}
    if settlement.unmerged:
        yield REPLACE, {"runs": records(settlement.unmerged, STORED)}
    if settlement.failed:
        ids, seconds, due_at, problems = zip(*settlement.failed, strict=True)
        yield query("jobs/settle_failed"), {
            "ids": array(ids), "delays": array("NULL" if delay is None else str(delay) for delay in seconds),
            "due_at": array(map(_moment, due_at)), "problems": list(problems),
        }


def _adjusted(occurrences: Sequence[AdjustedOccurrence]) -> dict[str, str | list[str]]:
    states = [occurrence.state for occurrence in occurrences]
    return {
        "ids": array(occurrence.id for occurrence in occurrences),
        "due": array(_moment(occurrence.due_at) for occurrence in occurrences),
        "following": array(_moment(state.next_run_at) for state in states),
        "nominal": array(_moment(state.nominal_at) for state in states),
        "settled": array(_moment(state.settled_until) for state in states),
        "settled_due": array(_moment(state.settled_due) for state in states),
        "unsettled": [spans_text(state.unsettled) for state in states],
        "reported": array(_moment(state.reported_until) for state in states),
        "skip_at": array(_moment(state.skip_at) for state in states),
        "revisions": array(number_text(state.calendar_revision) for state in states),
    }


def _moment(moment: datetime | None) -> str:
    return "NULL" if moment is None else moment.isoformat()
