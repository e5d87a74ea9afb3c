"""What deliveries, results, deadlines, cancels and retries make of a run: successors, never mutation.

What is said of an attempt counts whenever it comes, as long as that attempt is the current one; a success counts
whichever attempt it is of. So any order and any repetition of the same messages ends in the same state.
"""

from datetime import datetime, timedelta

from scheduler.domain.issued_at import TRUSTED_AHEAD
from scheduler.domain.messages import RecordedStatus, ResultStatus
from scheduler.domain.names import COMMAND_KEY_PREFIX
from scheduler.domain.runs.backoff import backoff
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import (
    FIRST_KEPT,
    LAST_KEPT,
    MOST_UNANNOUNCED,
    AttemptOutcome,
    FinishedAttempt,
    Occurrence,
    Run,
    RunStatus,
    replace,
)


def deliver_run(run: Run | None, event_id: str, occurrence: Occurrence, at: datetime) -> Run:
    """Return the run after its event went out once more, at `at`; with what was said of it before, if anything."""
    before = run or Run(event_id, RunStatus.EXPECTED)
    current = _delivered(replace(before, occurrence=before.occurrence or occurrence), at)
    for result in before.early:
        if result.tenant not in (None, occurrence.tenant):
            continue  # it was about a run of another's
        current, _ = apply_result(current, result, at)
    return replace(current, early=(), noted_at=None)


def _delivered(run: Run, at: datetime) -> Run:
    assert run.occurrence is not None  # noqa: S101 - only what is known is delivered
    return replace(
        run, status=RunStatus.DELIVERED, attempt=run.attempt + 1, counted=run.counted + 1, emitted_at=at,
        retry_at=None, deadline=at + timedelta(seconds=run.occurrence.policy.start_timeout), alive_until=None,
        started_at=None, worker=None, progress=None, error=None, output=None, output_cut=False, decided_by=None,
    )


def apply_result(run: Run | None, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    """Return what a result makes of its run, and what to answer; None stands for an event that is not known."""
    if run is not None and run.status is RunStatus.EMITTED:
        return run, "unchanged"
    if run is None or run.status is RunStatus.EXPECTED:
        return _noted(run or Run(result.event_id, RunStatus.EXPECTED, noted_at=now), result)
    if result.status is ResultStatus.SUCCEEDED:
        return _succeeded(run, result, now)
    if _sent_unrecorded(run, result, now):
        run = _delivered(run, now)
    if result.attempt != run.attempt:
        return run, "superseded" if result.attempt < run.attempt else "unchanged"
    if run.status is RunStatus.SUCCEEDED:
        return run, "unchanged"
    if run.status is RunStatus.CANCELLED:
        return _ended_after_cancel(run, result, now)
    if result.status is ResultStatus.RUNNING:
        return _running(run, result, now)
    return _ended(run, result, now)


def _sent_unrecorded(run: Run, result: Result, now: datetime) -> bool:
    """Whether the broker may have the next attempt, though its producer did not live to write that down."""
    due = run.status is RunStatus.WAITING and run.retry_at is not None and run.retry_at <= now
    return due and result.attempt == run.attempt + 1


def _noted(run: Run, result: Result) -> tuple[Run, RecordedStatus]:
    """Keep a result of an event that is not known: one of each sort, or a worker could fill the row at will."""
    if result in run.early:
        return run, "unchanged"
    rivals = [each for each in run.early if each.sort() == result.sort()]
    if result.status is not ResultStatus.RUNNING and any(each.order() > result.order() for each in rivals):
        return run, "unchanged"
    others = [each for each in run.early if each not in rivals]
    return replace(run, early=tuple(sorted((*others, result), key=Result.order))), "recorded"


def _succeeded(run: Run, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    if run.status is RunStatus.SUCCEEDED:
        return run, "unchanged"
    started = result.started_at or _started(run, result.attempt)
    ended = FinishedAttempt(result.attempt, AttemptOutcome.SUCCEEDED, result.worker or run.worker, started,
                    result.finished_at or now, result.error, result.output, result.output_cut)
    attempts, omitted = _with(run, ended)
    # Field by field, in their order: most results are such, and `replace` takes twice as long.
    return Run(
        run.event_id, RunStatus.SUCCEEDED, run.attempt + _sent_unrecorded(run, result, now), _counted(run),
        run.emitted_at, None, None, None, started, now, ended.worker, None, result.error, result.output,
        result.output_cut, attempts, result.weight(), run.retried_at, run.early, run.noted_at, omitted,
        run.unannounced, run.occurrence,
    ), "recorded"


def _started(run: Run, attempt: int) -> datetime | None:
    """Return when an attempt was first reported as running, if that is known."""
    if attempt == run.attempt:
        return run.started_at
    return next((each.started_at for each in run.attempts if each.attempt == attempt), None)


def _running(run: Run, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    if run.status not in (RunStatus.DELIVERED, RunStatus.RUNNING):
        # Given up over a deadline while its worker was at work: it should know that the run is no longer its own.
        given_up = run.status in (RunStatus.WAITING, RunStatus.DEAD) and run.decided_by is None
        return run, "superseded" if given_up else "unchanged"
    assert run.occurrence is not None  # noqa: S101 - a delivered run is known
    if run.status is RunStatus.RUNNING and _another_has_it(run, run.occurrence, result, now):
        return run, "superseded"
    first = run.status is RunStatus.DELIVERED
    alive = None if result.heartbeat is None else now + timedelta(seconds=result.heartbeat)
    return replace(
        run, status=RunStatus.RUNNING, alive_until=alive, worker=result.worker or run.worker,
        started_at=(result.started_at or now) if first else run.started_at,
        deadline=now + timedelta(seconds=run.occurrence.policy.timeout) if first else run.deadline,
        progress=run.progress if result.progress is None else result.progress,
        output=run.output if result.output is None else result.output,
        output_cut=run.output_cut if result.output is None else result.output_cut,
    ), "recorded"


def _another_has_it(run: Run, occurrence: Occurrence, result: Result, now: datetime) -> bool:
    """Whether another worker has begun the command and lives.

    Its event may be delivered twice. Whoever runs commands acknowledges it at the start: that a second one gets it
    does not mean that the first is dead. Of hosts and webhooks it may mean just that.
    """
    alive = run.alive_until is not None and run.alive_until > now
    named = run.worker is not None and result.worker is not None and run.worker != result.worker
    return alive and named and (occurrence.work or "").startswith(COMMAND_KEY_PREFIX)


def _ended(run: Run, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    """Take a final word about the current attempt, unless a weightier one has decided it already."""
    if run.decided_by is not None and result.weight() <= run.decided_by:
        return run, "unchanged"
    if run.decided_by is None and run.status not in (RunStatus.DELIVERED, RunStatus.RUNNING):
        return run, "unchanged"  # a deadline has decided it
    run, ended = _attempt_ended(run, result, now)
    if result.status is ResultStatus.FAILED and not result.retry:
        return _dead(run, ended, now), "recorded"
    return _ends(run, ended, now, result.retry_in), "recorded"


def _ended_after_cancel(run: Run, result: Result, now: datetime) -> tuple[Run, RecordedStatus]:
    """Record how the current attempt of a cancelled run ended; the run stays cancelled."""
    if result.status is ResultStatus.RUNNING:
        return run, "unchanged"
    if run.decided_by is not None and result.weight() <= run.decided_by:
        return run, "unchanged"
    if run.decided_by is None and any(each.attempt == run.attempt for each in run.attempts):
        return run, "unchanged"  # a deadline has decided it
    run, ended = _attempt_ended(run, result, now)
    attempts, omitted = _with(run, ended)
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


def expire_attempt(run: Run, now: datetime) -> Run:
    """Return the run after nothing was heard of its attempt in time; the same if it is not time yet."""
    if run.status not in (RunStatus.DELIVERED, RunStatus.RUNNING):
        return run
    lost = run.alive_until is not None and run.alive_until <= now
    if not lost and (run.deadline is None or run.deadline > now):
        return run
    if run.deadline is not None and run.deadline <= now:
        lost = False
    never = run.status is RunStatus.DELIVERED
    error = "nobody reported to have started it in time" if never else (
        "its worker gave no further sign of life" if lost else "it took longer than its time limit"
    )
    outcome = AttemptOutcome.LOST if lost else AttemptOutcome.TIMED_OUT
    ended = FinishedAttempt(
        run.attempt, outcome, run.worker, run.started_at, now, error, run.output, run.output_cut
    )
    return _ends(run, ended, now, None)


def _ends(run: Run, ended: FinishedAttempt, now: datetime, retry_in: float | None) -> Run:
    assert run.occurrence is not None  # noqa: S101 - an attempt was made
    policy = run.occurrence.policy
    if ended.outcome is not AttemptOutcome.SNOOZED and run.counted >= policy.max_attempts:
        return _dead(run, ended, now)
    wait = backoff(policy, run.counted, run.event_id, run.attempt) if retry_in is None else retry_in
    attempts, omitted = _with(run, ended)
    return replace(
        run, status=RunStatus.WAITING, attempts=attempts, attempts_omitted=omitted, finished_at=None,
        retry_at=now + timedelta(seconds=wait), deadline=None, alive_until=None, progress=None,
        started_at=ended.started_at, worker=ended.worker, error=ended.error, output=ended.output,
        output_cut=ended.output_cut,
    )


def _dead(run: Run, ended: FinishedAttempt, now: datetime) -> Run:
    attempts, omitted = _with(run, ended)
    return replace(
        run, status=RunStatus.DEAD, finished_at=now, attempts=attempts, attempts_omitted=omitted,
        retry_at=None, deadline=None, alive_until=None, progress=None, started_at=ended.started_at,
        worker=ended.worker, error=ended.error, output=ended.output, output_cut=ended.output_cut,
    )


def cancel_run(run: Run, now: datetime) -> Run:
    """Return the run after its job was cancelled: no further attempt is made."""
    if not run.open or run.status is RunStatus.EXPECTED:
        return run
    return replace(run, status=RunStatus.CANCELLED, finished_at=now, retry_at=None, deadline=None,
                   alive_until=None, progress=None)


def retry_run(run: Run, issued: datetime, now: datetime) -> Run:
    """Return the run with a fresh set of attempts if it was given up or cancelled; the same otherwise."""
    if run.status not in (RunStatus.DEAD, RunStatus.CANCELLED):
        return run
    newest = run.retried_at
    if newest is not None and newest - now > TRUSTED_AHEAD and issued != newest:
        newest = None
    if newest is not None and issued <= newest:
        return run
    if len(run.unannounced or ()) >= MOST_UNANNOUNCED:
        return run  # the broker is unavailable: the ends so far have to be announced first
    return replace(run, status=RunStatus.WAITING, counted=0, retry_at=now, finished_at=None, retried_at=issued,
                   decided_by=None)


def _with(run: Run, ended: FinishedAttempt) -> tuple[tuple[FinishedAttempt, ...], int | None]:
    """Return the attempts with this one in its place, and how many are left out of the middle."""
    if not run.attempts:
        return (ended,), run.attempts_omitted
    others = [each for each in run.attempts if each.attempt != ended.attempt]
    attempts = sorted((*others, ended), key=lambda each: each.attempt)
    omitted = run.attempts_omitted or 0
    if omitted and len(others) == len(run.attempts) and attempts[-1] is not ended:
        omitted -= 1  # it was left out before
    if len(attempts) > FIRST_KEPT + LAST_KEPT:
        middle = attempts[FIRST_KEPT:-LAST_KEPT]
        succeeded = [each for each in middle if each.outcome is AttemptOutcome.SUCCEEDED]
        attempts[FIRST_KEPT:-LAST_KEPT] = succeeded
        omitted += len(middle) - len(succeeded)
    return tuple(attempts), omitted or None


def _counted(run: Run) -> int:
    """Return how many attempts count, the current one included, whatever was said of it before."""
    if run.decided_by is None:
        return run.counted
    last = next((each.outcome for each in run.attempts if each.attempt == run.attempt), None)
    return run.counted + (last is AttemptOutcome.SNOOZED)
