"""Compares what workers did with what became of each run: none open, none lost, none early, none too many."""

from typing import Any

from chaos.account import Result, Sql
from chaos.runs_load import POLICY, Made, RunBooks
from chaos.worker import HEARTBEAT

RESCUE_SECONDS = 30.0
_SHORTEST, _LONGEST = min(POLICY["backoff"]), max(POLICY["backoff"])


def ended(books: RunBooks, sql: Sql) -> bool:
    """Tell whether every run that a worker has seen has ended, and the host heard of it, a late success included."""
    return not sql(_OPEN)[0][0] and not unheard(books) and not taken_back(books) and not _coming(books, sql)


_OPEN = "SELECT count(*) FROM runs WHERE status <> 'expected'"


def _coming(books: RunBooks, sql: Sql) -> set[str]:
    """Return the events whose end was told, and is still on its way: also of those that no worker has seen."""
    return {event_id for event_id, in sql("SELECT event_id::text FROM run_history")} - set(books.finished)


def unheard(books: RunBooks) -> set[str]:
    """Return the events of which a worker has seen an attempt, and the host never heard how they ended."""
    return set(books.attempts) - set(books.finished)


def taken_back(books: RunBooks) -> list[str]:
    """Return the events of which the broker has a success, and of which something else was told last."""
    done = [event_id for event_id, attempts in list(books.attempts.items())
            if any("succeeded" in made.confirmed for made in list(attempts.values()))]
    return [event_id for event_id in done if (books.finished.get(event_id) or _NOTHING)[-1][1]["status"] != "succeeded"]


_NOTHING = [(0.0, {"status": "open"})]


def judge(
    result: Result, books: RunBooks, sql: Sql, letters: set[str], *, rescue: bool, policy: dict[str, Any] = POLICY
) -> None:
    """Say everything that is wrong by the runs' policy; with `rescue`, also if a dead worker was noticed too late."""
    finals = {event_id: told[-1][1]["status"] for event_id, told in books.finished.items()}
    kept = dict(sql("SELECT event_id::text, status::text FROM run_history"))
    beyond, early, wrong_end, slowest = [], [], taken_back(books), 0.0
    for event_id, attempts in books.attempts.items():
        snoozed = sum(any(said["status"] == "snoozed" for _, said in made.said) for made in attempts.values())
        if max(attempts) > policy["max_attempts"] + snoozed:
            beyond.append(event_id)
        for number, made in attempts.items():
            following = attempts.get(number + 1)
            if following is not None and following.emitted_at < _possible(made, policy):
                early.append((event_id, number + 1))
            if following is not None and made.running and not made.said:
                slowest = max(slowest, following.emitted_at - max(made.running) - HEARTBEAT - _LONGEST)
    left = sql(_OPEN)[0][0]
    statuses = [told["status"] for each in books.finished.values() for _, told in each]
    dead = {event_id for event_id, each in books.finished.items() if any(told["status"] == "dead" for _, told in each)}
    result.early += len(early)
    result.lost += len(unheard(books))
    made = sum(map(len, books.attempts.values()))
    result.notes += [
        f"{len(books.attempts):,} runs, {made:,} attempts, {len(dead)} given up, {statuses.count('succeeded'):,} succeeded",
        f"{left} left open, {len(early)} attempts early, {len(beyond)} beyond max_attempts",
        f"a silent worker's run went on at most {max(0.0, slowest):.1f} s after its heartbeat was missed",
    ]
    result.failures += [text for wrong, text in (
        (left, f"{left} runs left open"), (early, f"attempts before their time: {early[:3]}"),
        (beyond, f"more attempts than allowed: {beyond[:3]}"),
        (wrong_end, f"reported as succeeded, and not told so: {wrong_end[:3]}"),
        (unheard(books), f"no end was told of {len(unheard(books))} runs"),
        (finals != kept, f"the history says otherwise of {len(finals.items() ^ kept.items())} runs"),
        (dead - letters, f"no dead letter of {len(dead - letters)} runs"),
        (rescue and slowest > RESCUE_SECONDS, f"a dead worker's run went on only after {slowest:.1f} s"),
    ) if wrong]


def _possible(made: Made, policy: dict[str, Any]) -> float:
    """Return the first moment at which the next attempt might be made, by what was said of this one.

    Whatever was said came after it was sent, so nothing that is judged by this hangs on how long it took.
    """
    known = [made.emitted_at + policy["start_timeout"] + _SHORTEST]
    if made.running:
        known.append(min(made.running) + min(HEARTBEAT, policy["timeout"]) + _SHORTEST)
    known += [at + said.get("retry_in", _SHORTEST) for at, said in made.said]
    return min(known)
