"""Ends of runs that a retry or a late success superseded before they were announced."""

from collections.abc import Mapping, MutableMapping

from scheduler.domain.runs.run import FinishedAttempt, Run, RunEnd, RunStatus, replace

_ENDS = frozenset({RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED})


def keep_unannounced_ends(before: Mapping[str, Run], after: MutableMapping[str, Run]) -> None:
    """Add the unannounced end of each finished run that continues or ends differently."""
    for event_id, run in before.items():
        if run.status in _ENDS:
            now = after[event_id]
            if now.status is not run.status:
                after[event_id] = replace(now, unannounced=(*(run.unannounced or ()), run_end(run)))


def run_end(run: Run) -> RunEnd:
    """Return the end of a finished run."""
    assert run.finished_at is not None  # noqa: S101 - it has ended
    by, last = run.ended_by, run.attempts[-1] if run.attempts else None
    return RunEnd(
        run.status, run.attempt, run.counted, run.emitted_at, run.started_at, run.finished_at,
        None if by is None else by.finished_at, None if last is None else last.outcome, run.error, run.output,
        run.output_cut,
    )


def run_at_end(run: Run, end: RunEnd) -> Run:
    """Return a run as it was at that end, with the fields that a ScheduleFinished needs."""
    attempts: tuple[FinishedAttempt, ...] = ()
    if end.outcome is not None:
        finished_at = end.ended_at or end.finished_at
        attempts = (
            FinishedAttempt(end.attempt, end.outcome, None, end.started_at, finished_at, end.error, end.output),
        )
    return replace(
        run, status=end.status, attempt=end.attempt, counted=end.counted, emitted_at=end.emitted_at,
        started_at=end.started_at, finished_at=end.finished_at, error=end.error, output=end.output,
        output_cut=end.output_cut, attempts=attempts, unannounced=None,
    )
