"""A run in words: why it is where it is, what comes next, and how each attempt went."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from scheduler.cli.terminal import from_now, plain, span
from scheduler.domain.instants import rfc3339
from scheduler.domain.runs.run import FIRST_KEPT, AttemptOutcome, FinishedAttempt, Run, RunStatus
from scheduler.postgres.runs.report import RunReport

_LONGEST_REASON = 500
_LONGEST_CELL = 60
_LONGEST_OUTPUT = 200
_MORE = "`scheduler run retry` gives it a fresh set of attempts, at once."
_ENDED = {
    AttemptOutcome.SUCCEEDED: "succeeded",
    AttemptOutcome.FAILED: "failed",
    AttemptOutcome.TIMED_OUT: "timed out",
    AttemptOutcome.LOST: "was lost",
    AttemptOutcome.SNOOZED: "was put off",
}
_HEAD = ("DUE", "STATUS", "ATTEMPT", "TYPE", "EVENT", "WORKER", "ERROR")
_ATTEMPT_HEAD = ("ATTEMPT", "OUTCOME", "STARTED", "FINISHED", "TOOK", "WORKER", "ERROR")


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
    return _table(_HEAD, cells)


def explain(known: RunReport) -> list[str]:
    """Return a table of what the run is, sentences on where it stands and what comes next, and its attempts."""
    run, about = known.run, known.run.occurrence
    facts = {"run": run.event_id}
    if about is not None:
        facts |= {
            "job": about.job_id,
            "type": plain(about.job_type),
            "due": f"{rfc3339(about.due_at)}, by {'its schedule' if about.origin == 'schedule' else 'a trigger'}",
        }
    facts["status"] = run.status.value
    if run.status not in (RunStatus.EMITTED, RunStatus.EXPECTED):
        facts["attempt"] = _count(run)
    if run.output is not None:
        cut = " (only its beginning was kept)" if run.output_cut else ""
        facts["output"] = plain(run.output, _LONGEST_OUTPUT) + cut
    told = [f"{name:<9}{value}" for name, value in facts.items()]
    told += ["", *_standing(known)]
    return [*told, "", *_attempts(run)] if run.attempts else told


def _attempts(run: Run) -> list[str]:
    head, *rows = _table(_ATTEMPT_HEAD, [_cells(run, each) for each in run.attempts])
    if run.attempts_omitted:
        rows.insert(FIRST_KEPT, f"… {run.attempts_omitted:,} attempts not shown")
    return [head, *rows]


def _standing(known: RunReport) -> Iterator[str]:
    """Say why the run is where it is, and what happens next."""
    run = known.run
    match run.status:
        case RunStatus.EXPECTED:
            yield f"Of this event nothing is known but what was reported of it, first{_at(run.noted_at)}."
            yield f"Unless a producer records the event{_by(run.wake_at, known)}, that is dropped."
        case RunStatus.EMITTED:
            yield f"Emitted{_at(run.emitted_at)}, confirmed{_at(run.finished_at)}."
            yield "Its job is not tracked: what became of it is not known."
        case RunStatus.DELIVERED:
            yield f"Attempt {run.attempt} went out{_at(run.emitted_at)}; nobody has reported to have started it."
            yield from _limit(known, "a worker has to report so")
        case RunStatus.RUNNING:
            done = f"; {run.progress:.0%} is done" if run.progress is not None else ""
            since = _time(run.started_at)
            yield f"{_worker_text(run.worker)} has been at attempt {run.attempt} since {since}{done}."
            yield from _limit(known, "its result has to come")
        case RunStatus.WAITING:
            yield from _waiting(known)
        case _:
            yield from _ended(known)
    if not known.producers and (run.open or not known.told):
        yield "No producer runs: nothing happens until one is started."


def _limit(known: RunReport, what: str) -> Iterator[str]:
    """Say by when the current attempt has to get on, and what happens if it does not."""
    run = known.run
    if run.wake_at is not None and run.wake_at <= known.now:
        ago = from_now(run.wake_at, known.now)
        yield f"Its time was up at {rfc3339(run.wake_at)}, {ago}: a producer is to end the attempt."
    else:
        if run.alive_until is not None:
            yield f"A sign of life has to come{_by(run.alive_until, known)}."
        yield f"{what[0].upper()}{what[1:]}{_by(run.deadline, known)}."
    if run.attempts_left:
        more = "once more" if run.attempts_left == 1 else f"up to {run.attempts_left} times more"
        yield f"If it fails, it is tried again: {more}."
    else:
        yield "It is the last attempt: if it fails, the run is given up."


def _waiting(known: RunReport) -> Iterator[str]:
    run = known.run
    if run.attempts:
        yield _last(run)
    if run.retried_at is not None and not run.counted:
        yield f"A retry issued at {rfc3339(run.retried_at)} gave it a fresh set of attempts."
    if run.retry_at is None:
        return
    which, when = f"Attempt {run.attempt + 1}", rfc3339(run.retry_at)
    if run.retry_at > known.now:
        yield f"{which} is made at {when}, {from_now(run.retry_at, known.now)}."
    else:
        waited = span(known.now - run.retry_at)
        yield f"{which} has been due since {when}, for {waited}: it goes out at any moment."


def _ended(known: RunReport) -> Iterator[str]:
    run = known.run
    match run.status:
        case RunStatus.SUCCEEDED:
            by = next((each for each in run.attempts if each.outcome is AttemptOutcome.SUCCEEDED), None)
            which = f" with attempt {by.attempt}, by {_worker_text(by.worker, start='a')}" if by else ""
            yield f"Succeeded{_at(run.finished_at)}{which}: nothing more happens."
        case RunStatus.DEAD:
            yield _last(run)
            if run.attempts_left:
                yield f"Given up{_at(run.finished_at)}: its worker said that to try again would not help."
            else:
                most = _max_attempts(run)
                made = "it was the only one" if most == 1 else f"all {most} attempts were made"
                yield f"Given up{_at(run.finished_at)}: {made}."
            yield f"The event lies in scheduler_dead. {_MORE}"
        case _:
            yield f"Cancelled{_at(run.finished_at)}, with its job: no further attempt is made. {_MORE}"
            yield "A worker that was at it was not interrupted; if it reports a success, that counts."
    if not known.told:
        yield "Those who listen for ScheduleFinished have not been told yet: a producer does so."


def _last(run: Run) -> str:
    """Say how the newest attempt that has ended went."""
    last = run.attempts[-1]
    snoozed = last.worker and last.outcome is AttemptOutcome.SNOOZED
    by = f" by {_worker_text(last.worker, start='a')}" if snoozed else ""
    why = f": {plain(last.error, _LONGEST_REASON).rstrip('.')}" if last.error else ""
    return f"Attempt {last.attempt} {_ENDED[last.outcome]}{by} at {rfc3339(last.finished_at)}{why}."


def _cells(run: Run, each: FinishedAttempt) -> tuple[str, ...]:
    known = None if each.started_at is None else each.finished_at - each.started_at
    duration = run.duration if each is run.ended_by else known
    took = "" if duration is None else span(duration)
    return (
        str(each.attempt), each.outcome.value, _instant(each.started_at) or "", rfc3339(each.finished_at), took,
        _cell(each.worker), _cell(each.error),
    )


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shape = "  ".join(f"{{:<{width}}}" for width in widths)
    return [shape.format(*line).rstrip() for line in lines]


def _cell(text: str | None) -> str:
    return plain(text or "", _LONGEST_CELL)


def _count(run: Run) -> str:
    """Return which attempt it is, and which of those that count: some may be put off, or it was retried."""
    most = _max_attempts(run)
    if most is None:
        return str(run.attempt)
    return f"{run.attempt} of {most}" if run.counted == run.attempt else f"{run.attempt} ({run.counted} of {most})"


def _max_attempts(run: Run) -> int | None:
    tracked = run.occurrence is not None and run.status is not RunStatus.EMITTED
    return run.occurrence.policy.max_attempts if tracked and run.occurrence else None


def _worker_text(worker: str | None, start: str = "A") -> str:
    return plain(worker) if worker else f"{start} worker that gave no name"


def _time(moment: datetime | None) -> str:
    return "a time that is not on record" if moment is None else rfc3339(moment)


def _at(moment: datetime | None) -> str:
    return f" at {_time(moment)}"


def _by(moment: datetime | None, known: RunReport) -> str:
    return "" if moment is None else f" by {rfc3339(moment)}, {from_now(moment, known.now)}"


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
