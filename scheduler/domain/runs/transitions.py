"""Transitions of a run by deliveries, results, deadlines, cancels and retries. They return new runs, never mutate.

A result applies at any time while its attempt is the current one; a success applies for any attempt. So the order
and the repetition of messages do not change the final state.
"""

from datetime import datetime, timedelta

from scheduler.domain.issued_at import TRUSTED_AHEAD
from scheduler.domain.messages import RecordedStatus, ResultStatus, RunPolicy
from scheduler.domain.runs.backoff import backoff
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import (
    FIRST_KEPT,
    LAST_KEPT,
    MAX_UNANNOUNCED,
    AttemptOutcome,
    FinishedAttempt,
    Occurrence,
    Run,
    RunStatus,
    replace,
)
from scheduler.domain.targets.target import target_of_key


def deliver_run(
    run: Run | None, event_id: str, occurrence: Occurrence, at: datetime, by: str | None = None
) -> Run:
    """Return the run after a producer published its event at `at`, with early results applied."""
    before = run or Run(event_id, RunStatus.EXPECTED)
    occurrence = before.occurrence or occurrence
    current = _delivered(replace(before, occurrence=occurrence, emitted_by=by), occurrence, at)
    for result in before.early:
        if result.tenant not in (None, occurrence.tenant):
            continue  # from another tenant
        current, _ = apply_result(current, result, at)
    return replace(current, early=(), noted_at=None)


def _delivered(run: Run, occurrence: Occurrence, at: datetime) -> Run:
    return replace(
        run, status=RunStatus.DELIVERED, attempt=run.attempt + 1, counted=run.counted + 1, emitted_at=at,
        retry_at=None, deadline=at + timedelta(seconds=occurrence.policy.start_timeout), alive_until=None,
        started_at=None, worker=None, progress=None, error=None, output=None, output_cut=False, decided_by=None,
    )


def apply_result(run: Run | None, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    """Return the run after a result, and the status of the reply; None is an unknown event."""
    if run is not None and run.status is RunStatus.EMITTED:
        return run, "unchanged"
    if run is None or run.occurrence is None:
        return _noted(run or Run(result.event_id, RunStatus.EXPECTED, noted_at=now), result)
    occurrence = run.occurrence
    if result.status is ResultStatus.SUCCEEDED:
        return _succeeded(run, result, now)
    if _sent_unrecorded(run, result, now):
        run = _delivered(run, occurrence, now)
    if result.attempt != run.attempt:
        return run, "superseded" if result.attempt < run.attempt else "unchanged"
    if run.status is RunStatus.SUCCEEDED:
        return run, "unchanged"
    if run.status is RunStatus.CANCELLED:
        return _ended_after_cancel(run, result, now)
    if result.status is ResultStatus.RUNNING:
        return _running(run, occurrence, result, now)
    return _ended(run, occurrence, result, now)


def _sent_unrecorded(run: Run, result: Result, now: datetime) -> bool:
    """Return whether the next attempt may be published although its producer died before recording it."""
    due = run.status is RunStatus.WAITING and run.retry_at is not None and run.retry_at <= now
    return due and result.attempt == run.attempt + 1


def _noted(run: Run, result: Result) -> tuple[Run, RecordedStatus]:
    """Store a result for an unknown event. One per category: otherwise a worker could fill the row."""
    if result in run.early:
        return run, "unchanged"
    same = [early for early in run.early if early.category() == result.category()]
    if result.status is not ResultStatus.RUNNING and any(early.order() > result.order() for early in same):
        return run, "unchanged"
    others = [early for early in run.early if early not in same]
    return replace(run, early=tuple(sorted((*others, result), key=Result.order))), "recorded"


def _succeeded(run: Run, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    if run.status is RunStatus.SUCCEEDED:
        return run, "unchanged"
    started = result.started_at or _started(run, result.attempt)
    ended = FinishedAttempt(result.attempt, AttemptOutcome.SUCCEEDED, result.worker or run.worker, started,
                    result.finished_at or now, result.error, result.output, result.output_cut)
    attempts, omitted = _add_attempt(run, ended)
    # Most results are successes, and `replace` takes twice as long.
    return Run(
        run.event_id, RunStatus.SUCCEEDED, run.attempt + _sent_unrecorded(run, result, now), _counted(run),
        run.emitted_at, None, None, None, started, now, ended.worker, None, result.error, result.output,
        result.output_cut, attempts, result.weight(), run.retried_at, run.early, run.noted_at, omitted,
        run.unannounced, run.emitted_by, run.occurrence, run.triggered_by,
    ), "recorded"


def _started(run: Run, attempt: int) -> datetime | None:
    """Return the time of an attempt's first `running`, if known."""
    if attempt == run.attempt:
        return run.started_at
    return next((ended.started_at for ended in run.attempts if ended.attempt == attempt), None)


def _running(
    run: Run, occurrence: Occurrence, result: Result, now: datetime
) -> tuple[Run, RecordedStatus]:
    if run.status not in (RunStatus.DELIVERED, RunStatus.RUNNING):
        # The attempt expired while its worker was running: tell it that it no longer owns the run.
        expired = run.status in (RunStatus.WAITING, RunStatus.DEAD) and run.decided_by is None
        return run, "superseded" if expired else "unchanged"
    if run.status is RunStatus.RUNNING and _owned_by_other(run, occurrence, result, now):
        return run, "superseded"
    first = run.status is RunStatus.DELIVERED
    alive = None if result.heartbeat is None else now + timedelta(seconds=result.heartbeat)
    return replace(
        run, status=RunStatus.RUNNING, alive_until=alive, worker=result.worker or run.worker,
        started_at=(result.started_at or now) if first else run.started_at,
        deadline=now + timedelta(seconds=occurrence.policy.timeout) if first else run.deadline,
        progress=run.progress if result.progress is None else result.progress,
        output=run.output if result.output is None else result.output,
        output_cut=run.output_cut if result.output is None else result.output_cut,
    ), "recorded"


def _owned_by_other(run: Run, occurrence: Occurrence, result: Result, now: datetime) -> bool:
    """Return whether another live worker has the attempt.

    An event may be delivered twice. If workers acknowledge it at the start, a second delivery does not mean that
    the first worker is dead. For hosts and webhooks it may mean that.
    """
    alive = run.alive_until is not None and run.alive_until > now
    named = run.worker is not None and result.worker is not None and run.worker != result.worker
    target = None if occurrence.work is None else target_of_key(occurrence.work)
    return alive and named and target is not None and target.acknowledged_at_start


def _ended(
    run: Run, occurrence: Occurrence, result: Result, now: datetime
) -> tuple[Run, RecordedStatus]:
    """Apply a final result of the current attempt, unless one of higher precedence has decided it."""
    if run.decided_by is not None and result.weight() <= run.decided_by:
        return run, "unchanged"
    if run.decided_by is None and run.status not in (RunStatus.DELIVERED, RunStatus.RUNNING):
        return run, "unchanged"  # its deadline has decided it
    run, ended = _attempt_ended(run, result, now)
    if result.status is ResultStatus.FAILED and not result.retry:
        return _dead(run, ended, now), "recorded"
    return _end_attempt(run, occurrence.policy, ended, now, result.retry_in), "recorded"


def _ended_after_cancel(run: Run, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    """Record the outcome of the current attempt of a cancelled run, which stays cancelled."""
    if result.status is ResultStatus.RUNNING:
        return run, "unchanged"
    if run.decided_by is not None and result.weight() <= run.decided_by:
        return run, "unchanged"
    if run.decided_by is None and any(ended.attempt == run.attempt for ended in run.attempts):
        return run, "unchanged"  # its deadline has decided it
    run, ended = _attempt_ended(run, result, now)
    attempts, omitted = _add_attempt(run, ended)
    return replace(
        run, attempts=attempts, attempts_omitted=omitted, started_at=ended.started_at, worker=ended.worker,
        error=ended.error, output=ended.output, output_cut=ended.output_cut,
    ), "recorded"


def _attempt_ended(run: Run, result: Result, now: datetime) -> tuple[Run, FinishedAttempt]:
    """Return the run with its current attempt decided by a result, and that attempt."""
    snoozed = result.status is ResultStatus.SNOOZED
    outcome = AttemptOutcome.SNOOZED if snoozed else AttemptOutcome.FAILED
    ended = FinishedAttempt(run.attempt, outcome, result.worker or run.worker, result.started_at or run.started_at,
                    result.finished_at or now, result.error, result.output, result.output_cut)
    return replace(run, counted=_counted(run) - snoozed, decided_by=result.weight()), ended


def expire_attempt(run: Run, now: datetime, problem: str | None = None) -> Run:
    """Return the run after the deadline or a missed heartbeat of its attempt; the same run before that.

    With a `problem`, no worker can start it: an attempt that was not started is the last one.
    """
    if run.occurrence is None or run.status not in (RunStatus.DELIVERED, RunStatus.RUNNING):
        return run
    lost = run.alive_until is not None and run.alive_until <= now
    if not lost and (run.deadline is None or run.deadline > now):
        return run
    if run.deadline is not None and run.deadline <= now:
        lost = False
    never = run.status is RunStatus.DELIVERED
    error = problem or "no worker reported a start in time" if never else (
        "the worker missed its heartbeat" if lost else "the attempt exceeded its timeout"
    )
    outcome = AttemptOutcome.LOST if lost else AttemptOutcome.TIMED_OUT
    ended = FinishedAttempt(
        run.attempt, outcome, run.worker, run.started_at, now, error, run.output, run.output_cut
    )
    if never and problem is not None:
        return _dead(run, ended, now)
    return _end_attempt(run, run.occurrence.policy, ended, now, None)


def _end_attempt(
    run: Run, policy: RunPolicy, ended: FinishedAttempt, now: datetime, retry_in: float | None
) -> Run:
    if ended.outcome is not AttemptOutcome.SNOOZED and run.counted >= policy.max_attempts:
        return _dead(run, ended, now)
    wait = backoff(policy, run.counted, run.event_id, run.attempt) if retry_in is None else retry_in
    attempts, omitted = _add_attempt(run, ended)
    return replace(
        run, status=RunStatus.WAITING, attempts=attempts, attempts_omitted=omitted, finished_at=None,
        retry_at=now + timedelta(seconds=wait), deadline=None, alive_until=None, progress=None,
        started_at=ended.started_at, worker=ended.worker, error=ended.error, output=ended.output,
        output_cut=ended.output_cut,
    )


def _dead(run: Run, ended: FinishedAttempt, now: datetime) -> Run:
    attempts, omitted = _add_attempt(run, ended)
    return replace(
        run, status=RunStatus.DEAD, finished_at=now, attempts=attempts, attempts_omitted=omitted,
        retry_at=None, deadline=None, alive_until=None, progress=None, started_at=ended.started_at,
        worker=ended.worker, error=ended.error, output=ended.output, output_cut=ended.output_cut,
    )


def cancel_run(run: Run, now: datetime) -> Run:
    """Return the run after it or its job was cancelled; no further attempt is made."""
    if not run.open or run.status is RunStatus.EXPECTED:
        return run
    return replace(run, status=RunStatus.CANCELLED, finished_at=now, retry_at=None, deadline=None,
                   alive_until=None, progress=None)


def retry_run(run: Run, issued: datetime, now: datetime) -> Run:
    """Return a dead or cancelled run with a new set of attempts; any other run unchanged."""
    if run.status not in (RunStatus.DEAD, RunStatus.CANCELLED):
        return run
    newest = run.retried_at
    if newest is not None and newest - now > TRUSTED_AHEAD and issued != newest:
        newest = None
    if newest is not None and issued <= newest:
        return run
    if len(run.unannounced or ()) >= MAX_UNANNOUNCED:
        return run  # the broker is unavailable: announce the earlier ends first
    return replace(run, status=RunStatus.WAITING, counted=0, retry_at=now, finished_at=None, retried_at=issued,
                   decided_by=None)


def _add_attempt(run: Run, ended: FinishedAttempt) -> tuple[tuple[FinishedAttempt, ...], int | None]:
    """Return the attempts including this one, and the number omitted from the middle."""
    if not run.attempts:
        return (ended,), run.attempts_omitted
    others = [attempt for attempt in run.attempts if attempt.attempt != ended.attempt]
    attempts = sorted((*others, ended), key=lambda attempt: attempt.attempt)
    omitted = run.attempts_omitted or 0
    if omitted and len(others) == len(run.attempts) and attempts[-1] is not ended:
        omitted -= 1  # it was omitted before
    if len(attempts) > FIRST_KEPT + LAST_KEPT:
        middle = attempts[FIRST_KEPT:-LAST_KEPT]
        succeeded = [attempt for attempt in middle if attempt.outcome is AttemptOutcome.SUCCEEDED]
        attempts[FIRST_KEPT:-LAST_KEPT] = succeeded
        omitted += len(middle) - len(succeeded)
    return tuple(attempts), omitted or None


def _counted(run: Run) -> int:
    """Return the number of attempts that count, including the current one even if it was snoozed."""
    if run.decided_by is None:
        return run.counted
    last = next((ended.outcome for ended in run.attempts if ended.attempt == run.attempt), None)
    return run.counted + (last is AttemptOutcome.SNOOZED)
