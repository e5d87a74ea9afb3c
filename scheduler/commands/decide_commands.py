"""What a batch of commands makes of the jobs and runs that it is about: pure, whoever stores them."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from scheduler.domain.delayed.message import ReceiveOutcome
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.issued_at import check_issued_at
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome, Job, apply
from scheduler.domain.messages import RecordedStatus, Status
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import Run, RunStatus
from scheduler.domain.runs.transitions import apply_result, retry_run
from scheduler.ops.logs import get_logger

log = get_logger(__name__)

_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class RetryOutcome:
    """What a retry made of its run, and what to answer."""

    run: Run
    status: Status


class Locked(Enum):
    """The outcome of a message whose rows another session has locked: not applied yet."""

    LOCKED = auto()


LOCKED: Final = Locked.LOCKED
MessageOutcome = CommandOutcome | RetryOutcome | RecordedStatus | ReceiveOutcome | Rejected | Locked


def decide_jobs(
    known: Mapping[str, Job], batch: Sequence[Incoming], now: datetime
) -> tuple[list[MessageOutcome], dict[str, Job]]:
    """Return what became of each command about a job, in order, and the jobs as they are afterwards, by id."""
    jobs = dict(known)
    verdicts: list[MessageOutcome] = []
    for incoming in batch:
        try:
            verdict = apply(jobs.get(incoming.about), incoming, now)
        except Rejected as refusal:
            verdicts.append(refusal.without_traceback())
        except Exception:
            # As with parsing: what nobody thought of concerns this one command.
            log.exception("command cannot be applied", job_id=incoming.about,
                          do="report it, with the message in scheduler_dead")
            problem = Problem("body", "cannot be applied: an error of the scheduler's own, see its log")
            verdicts.append(Rejected([problem]))
        else:
            verdicts.append(verdict)
            jobs[incoming.about] = verdict.job
        now += _MICROSECOND  # commands of one batch without issued_at keep their order
    return verdicts, jobs


def decide_retry(runs: MutableMapping[str, Run], incoming: Incoming, now: datetime) -> RetryOutcome | Rejected:
    """Return what became of a retry, and put the run as it is afterwards in its place."""
    run = runs.get(incoming.about)
    if (
        run is None or run.status in (RunStatus.EXPECTED, RunStatus.EMITTED)
        or run.occurrence is None or run.occurrence.tenant != incoming.tenant
    ):
        # The same words for one that is another tenant's: who asks learns nothing.
        return Rejected([Problem("event_id", "is not available: no tracked job has such a run, or it was pruned")])
    try:
        check_issued_at(incoming.command.issued_at, now)
    except Rejected as rejected:
        return rejected.without_traceback()
    after = retry_run(run, incoming.command.issued_at or now, now)
    runs[incoming.about] = after
    return RetryOutcome(after, "unchanged" if after is run else "scheduled")


def decide_result(runs: MutableMapping[str, Run], result: Result, now: datetime) -> RecordedStatus | Rejected:
    """Return what became of a result, and put the run as it is afterwards in its place."""
    before = runs.get(result.event_id)
    if before is not None and before.occurrence is not None and result.tenant not in (
        None, before.occurrence.tenant
    ):
        return Rejected([Problem("event_id", "is not available")])
    run, status = apply_result(before, result, now)
    if run is not before:
        runs[result.event_id] = run
    return status
