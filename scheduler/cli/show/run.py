"""`scheduler run list` and `run show`: a run's state, next step and attempts."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from scheduler.cli.terminal import from_now, plain, span
from scheduler.cli.verb_helpers import table
from scheduler.domain.instants import rfc3339
from scheduler.domain.runs.run import FIRST_KEPT, AttemptOutcome, FinishedAttempt, Run, RunStatus
from scheduler.postgres.runs.report import RunReport

_MAX_REASON = 500
_MAX_CELL = 60
_MAX_OUTPUT = 200
_RETRY_HINT = "`scheduler run retry` retries it now."
_ENDED = {
    AttemptOutcome.SUCCEEDED: "succeeded",
    AttemptOutcome.FAILED: "failed",
    AttemptOutcome.TIMED_OUT: "timed out",
    AttemptOutcome.LOST: "was lost",
    AttemptOutcome.SNOOZED: "was snoozed",
}
_HEAD = ("DUE", "STATUS", "ATTEMPT", "TYPE", "EVENT", "WORKER", "ERROR")
_ATTEMPT_HEAD = ("ATTEMPT", "OUTCOME", "STARTED", "FINISHED", "DURATION", "WORKER", "ERROR")


def rows(runs: Sequence[Run]) -> list[str]:
    """Return runs as a table."""
    cells = [
        (
            rfc3339(run.occurrence.due_at) if run.occurrence else "", run.status.value, _count(run),
            _cell(run.occurrence.job_type if run.occurrence else None), run.event_id, _cell(run.worker),
            _cell(run.error),
        )
        for run in runs
    ]
    return table(_HEAD, cells)


def explain(report: RunReport) -> list[str]:
    """Return a table of the run's fields, sentences on its state and next step, and its attempts."""
    run, occurrence = report.run, report.run.occurrence
    facts = {"run": run.event_id}
    if occurrence is not None:
        origin = "its schedule" if occurrence.origin == "schedule" else "a trigger" + _caller(run)
        facts |= {
            "job": occurrence.job_id,
            "type": plain(occurrence.job_type),
            "due": f"{rfc3339(occurrence.due_at)}, by {origin}",
        }
    facts["status"] = run.status.value
    if run.status not in (RunStatus.EMITTED, RunStatus.EXPECTED):
        facts["attempt"] = _count(run)
    if run.emitted_by is not None:
        facts["producer"] = run.emitted_by
    if run.output is not None:
        facts["output"] = plain(run.output, _MAX_OUTPUT) + (" (truncated)" if run.output_cut else "")
    lines = [*(f"{name:<9}{value}" for name, value in facts.items()), "", *_describe_state(report)]
    return [*lines, "", *_attempts(run)] if run.attempts else lines


def _caller(run: Run) -> str:
    """Return the caller who triggered a run and the source, if known."""
    if run.triggered_by is None:
        return ""
    via, who = run.triggered_by
    return (f" of {plain(who, _MAX_CELL)}" if who else "") + f" ({via})"


def _attempts(run: Run) -> list[str]:
    head, *rows = _table(_ATTEMPT_HEAD, [_cells(run, attempt) for attempt in run.attempts])
    if run.attempts_omitted:
        rows.insert(FIRST_KEPT, f"… {run.attempts_omitted:,} attempts not shown")
    return [head, *rows]


def _describe_state(report: RunReport) -> Iterator[str]:
    """Describe the run's state and its next step."""
    run = report.run
    match run.status:
        case RunStatus.EXPECTED:
            yield f"Results for this event arrived before a producer recorded it, the first{_at(run.noted_at)}."
            yield f"They are dropped unless a producer records it{_by(run.wake_at, report)}."
        case RunStatus.EMITTED:
            yield f"Emitted{_at(run.emitted_at)}, confirmed{_at(run.finished_at)}."
            yield "Its job is not tracked; the outcome is unknown."
        case RunStatus.DELIVERED:
            yield f"Attempt {run.attempt} was emitted{_at(run.emitted_at)}; no worker has reported its start."
            yield from _describe_deadline(report, "A worker must start it")
        case RunStatus.RUNNING:
            done = f"; {run.progress:.0%} is done" if run.progress is not None else ""
            since = _time(run.started_at)
            yield f"{_worker_text(run.worker)} has been running attempt {run.attempt} since {since}{done}."
            yield from _describe_deadline(report, "Its result must arrive")
        case RunStatus.WAITING:
            yield from _describe_waiting(report)
        case _:
            yield from _describe_end(report)
    if not report.producers and (run.open or not report.announced):
        yield "No producer is running: the run does not change until one starts."


def _describe_deadline(report: RunReport, requirement: str) -> Iterator[str]:
    """Describe the current attempt's deadline, and the consequence of a failure."""
    run = report.run
    if run.wake_at is not None and run.wake_at <= report.now:
        ago = from_now(run.wake_at, report.now)
        yield f"Its deadline passed at {rfc3339(run.wake_at)}, {ago}; a producer will end the attempt."
    else:
        if run.alive_until is not None:
            yield f"A heartbeat must arrive{_by(run.alive_until, report)}."
        yield f"{requirement}{_by(run.deadline, report)}."
    if run.attempts_left:
        more = "once more" if run.attempts_left == 1 else f"up to {run.attempts_left} more times"
        yield f"If it fails, it is retried {more}."
    else:
        yield "This is the last attempt: if it fails, the run is dead."


def _describe_waiting(report: RunReport) -> Iterator[str]:
    run = report.run
    if run.attempts:
        yield _last_attempt(run)
    if run.retried_at is not None and not run.counted:
        yield f"A retry issued at {rfc3339(run.retried_at)} reset its attempt count."
    if run.retry_at is None:
        return
    attempt, due_at = f"Attempt {run.attempt + 1}", rfc3339(run.retry_at)
    if run.retry_at > report.now:
        yield f"{attempt} is due at {due_at}, {from_now(run.retry_at, report.now)}."
    else:
        overdue = span(report.now - run.retry_at)
        yield f"{attempt} has been due since {due_at}, for {overdue}; a producer will emit it."


def _describe_end(report: RunReport) -> Iterator[str]:
    run = report.run
    match run.status:
        case RunStatus.SUCCEEDED:
            last = next((attempt for attempt in run.attempts if attempt.outcome is AttemptOutcome.SUCCEEDED), None)
            by = f" with attempt {last.attempt}, by {_worker_text(last.worker, article='an')}" if last else ""
            yield f"Succeeded{_at(run.finished_at)}{by}."
        case RunStatus.DEAD:
            yield _last_attempt(run)
            if run.attempts_left:
                yield f"Dead{_since(run.finished_at)}: its worker reported that a retry would not help."
            else:
                maximum = _max_attempts(run)
                attempts = "it had one attempt" if maximum == 1 else f"all {maximum} attempts are exhausted"
                yield f"Dead{_since(run.finished_at)}: {attempts}."
            yield f"The event is in scheduler_dead. {_RETRY_HINT}"
        case _:
            yield f"Cancelled{_at(run.finished_at)} with its job; there are no further attempts. {_RETRY_HINT}"
            yield "A worker that was running it was not interrupted; if it reports success, the run succeeds."
    if not report.announced:
        yield "ScheduleFinished is not published yet; a producer will publish it."


def _last_attempt(run: Run) -> str:
    """Describe the outcome of the latest finished attempt."""
    last = run.attempts[-1]
    snoozed = last.outcome is AttemptOutcome.SNOOZED
    by = f" by {plain(last.worker)}" if snoozed and last.worker else ""
    error = f": {plain(last.error, _MAX_REASON).rstrip('.')}" if last.error else ""
    return f"Attempt {last.attempt} {_ENDED[last.outcome]}{by} at {rfc3339(last.finished_at)}{error}."


def _cells(run: Run, attempt: FinishedAttempt) -> tuple[str, ...]:
    duration = None if attempt.started_at is None else attempt.finished_at - attempt.started_at
    if attempt is run.ended_by:
        duration = run.duration
    return (
        str(attempt.attempt), attempt.outcome.value, rfc3339(attempt.started_at) if attempt.started_at else "",
        rfc3339(attempt.finished_at), "" if duration is None else span(duration), _cell(attempt.worker),
        _cell(attempt.error),
    )


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shape = "  ".join(f"{{:<{width}}}" for width in widths)
    return [shape.format(*line).rstrip() for line in lines]


def _cell(text: str | None) -> str:
    return plain(text or "", _MAX_CELL)


def _count(run: Run) -> str:
    """Return the attempt number, and the number that counts if a snooze or a retry makes it differ."""
    maximum = _max_attempts(run)
    if maximum is None:
        return str(run.attempt)
    counted = f"{run.counted} of {maximum}"
    return counted if run.counted == run.attempt else f"{run.attempt} ({counted})"


def _max_attempts(run: Run) -> int | None:
    tracked = run.occurrence is not None and run.status is not RunStatus.EMITTED
    return run.occurrence.policy.max_attempts if tracked and run.occurrence else None


def _worker_text(worker: str | None, article: str = "An") -> str:
    return plain(worker) if worker else f"{article} unnamed worker"


def _time(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else rfc3339(moment)


def _at(moment: datetime | None) -> str:
    return f" at {_time(moment)}"


def _since(moment: datetime | None) -> str:
    return f" since {_time(moment)}"


def _by(moment: datetime | None, report: RunReport) -> str:
    return "" if moment is None else f" by {rfc3339(moment)}, {from_now(moment, report.now)}"



