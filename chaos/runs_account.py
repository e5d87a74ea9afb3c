"""Compare the workers' actions with the runs: none open, lost or early, and no extra attempts."""

from typing import Any

from chaos.account import Result, Sql
from chaos.runs_load import POLICY, AttemptRecord, RunRecords
from chaos.worker import HEARTBEAT

RESCUE_SECONDS = 30.0
_SHORTEST, _LONGEST = min(POLICY["backoff"]), max(POLICY["backoff"])


def all_ended(records: RunRecords, sql: Sql) -> bool:
    """Return whether every run that a worker has seen has ended and was announced, including late successes."""
    return not sql(_OPEN)[0][0] and not runs_without_end(records) and not overridden_successes(records) and not _ends_in_flight(records, sql)


_OPEN = "SELECT count(*) FROM runs WHERE status <> 'expected'"


def _ends_in_flight(records: RunRecords, sql: Sql) -> set[str]:
    """Return the events whose end was announced but not received yet, including unseen ones."""
    return {event_id for event_id, in sql("SELECT event_id::text FROM run_history")} - set(records.finished)


def runs_without_end(records: RunRecords) -> set[str]:
    """Return the events of which a worker has seen an attempt, but the host received no end."""
    return set(records.attempts) - set(records.finished)


def overridden_successes(records: RunRecords) -> list[str]:
    """Return the events with a confirmed success whose last announced end is different."""
    done = [event_id for event_id, attempts in list(records.attempts.items())
            if any("succeeded" in attempt.confirmed for attempt in list(attempts.values()))]
    return [event_id for event_id in done if (records.finished.get(event_id) or _NOTHING)[-1][1]["status"] != "succeeded"]


_NOTHING = [(0.0, {"status": "open"})]


def check(
    result: Result, records: RunRecords, sql: Sql, letters: set[str], *, rescue: bool, policy: dict[str, Any] = POLICY
) -> None:
    """Add all violations of the runs' policy; with `rescue`, also a dead worker that was detected too late."""
    finals = {event_id: ends[-1][1]["status"] for event_id, ends in records.finished.items()}
    history = dict(sql("SELECT event_id::text, status::text FROM run_history"))
    beyond, early, wrong_end, slowest = [], [], overridden_successes(records), 0.0
    for event_id, attempts in records.attempts.items():
        snoozed = sum(any(report["status"] == "snoozed" for _, report in attempt.reports) for attempt in attempts.values())
        if max(attempts) > policy["max_attempts"] + snoozed:
            beyond.append(event_id)
        for number, attempt in attempts.items():
            following = attempts.get(number + 1)
            if following is not None and following.emitted_at < _possible(attempt, policy):
                early.append((event_id, number + 1))
            if following is not None and attempt.running and not attempt.reports:
                slowest = max(slowest, following.emitted_at - max(attempt.running) - HEARTBEAT - _LONGEST)
    left = sql(_OPEN)[0][0]
    statuses = [end["status"] for ends in records.finished.values() for _, end in ends]
    dead = {event_id for event_id, ends in records.finished.items() if any(end["status"] == "dead" for _, end in ends)}
    result.early += len(early)
    result.lost += len(runs_without_end(records))
    attempt_count = sum(map(len, records.attempts.values()))
    result.notes += [
        f"{len(records.attempts):,} runs, {attempt_count:,} attempts, {len(dead)} dead, {statuses.count('succeeded'):,} succeeded",
        f"{left} left open, {len(early)} attempts early, {len(beyond)} beyond max_attempts",
        f"a silent worker's run continued at most {max(0.0, slowest):.1f} s after its heartbeat was missed",
    ]
    result.failures += [text for wrong, text in (
        (left, f"{left} runs left open"), (early, f"early attempts: {early[:3]}"),
        (beyond, f"more attempts than allowed: {beyond[:3]}"),
        (wrong_end, f"reported as succeeded, but announced otherwise: {wrong_end[:3]}"),
        (runs_without_end(records), f"no end announced for {len(runs_without_end(records))} runs"),
        (finals != history, f"the history differs for {len(finals.items() ^ history.items())} runs"),
        (dead - letters, f"no dead letter for {len(dead - letters)} runs"),
        (rescue and slowest > RESCUE_SECONDS, f"a dead worker's run continued only after {slowest:.1f} s"),
    ) if wrong]


def _possible(attempt: AttemptRecord, policy: dict[str, Any]) -> float:
    """Return the earliest time of the next attempt, by the reports of this one.

    Reports take effect after they are sent, so this bound does not depend on their transit time.
    """
    possible = [attempt.emitted_at + policy["start_timeout"] + _SHORTEST]
    if attempt.running:
        possible.append(min(attempt.running) + min(HEARTBEAT, policy["timeout"]) + _SHORTEST)
    possible += [at + report.get("retry_in", _SHORTEST) for at, report in attempt.reports]
    return min(possible)
