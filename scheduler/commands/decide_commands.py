"""Apply commands and results to jobs and runs in memory, without I/O."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from scheduler.domain.calendars import CalendarOutcome, FindEffective, no_calendar
from scheduler.domain.delayed.message import ReceiveOutcome
from scheduler.domain.errors import INTERNAL_ERROR, Problem, Rejected
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
    """The run after a retry, and the status of the reply."""

    run: Run
    status: Status


class Locked(Enum):
    """Outcome of a message that is not applied yet because another session has locked its rows."""

    LOCKED = auto()


LOCKED: Final = Locked.LOCKED
MessageOutcome = (
    CommandOutcome | RetryOutcome | CalendarOutcome | RecordedStatus | ReceiveOutcome | Rejected | Locked
)


def decide_jobs(
    stored: Mapping[str, Job], batch: Sequence[Incoming], now: datetime, find: FindEffective = no_calendar
) -> tuple[list[MessageOutcome], dict[str, Job]]:
    """Apply the commands in order; return their outcomes and the resulting jobs by id."""
    jobs = dict(stored)
    outcomes: list[MessageOutcome] = []
    for incoming in batch:
        try:
            outcome = apply(jobs.get(incoming.about), incoming, now, find)
        except Rejected as rejected:
            outcomes.append(rejected.without_traceback())
        except Exception:
            # A bug that one command triggers must not affect the rest of the batch.
            log.exception("command cannot be applied", job_id=incoming.about,
                          do="report it, with the message in scheduler_dead")
            problem = Problem("body", f"cannot be applied: {INTERNAL_ERROR}")
            outcomes.append(Rejected([problem]))
        else:
            outcomes.append(outcome)
            jobs[incoming.about] = outcome.job
        now += _MICROSECOND  # commands of one batch without issued_at keep their order
    return outcomes, jobs


def decide_retry(runs: MutableMapping[str, Run], incoming: Incoming, now: datetime) -> RetryOutcome | Rejected:
    """Apply a retry, replace the run in `runs` and return the outcome."""
    run = runs.get(incoming.about)
    if (
        run is None or run.status in (RunStatus.EXPECTED, RunStatus.EMITTED)
        or run.occurrence is None or run.occurrence.tenant != incoming.tenant
    ):
        # The same text for another tenant's run, so that it does not reveal that the run exists.
        return Rejected([Problem("event_id", "is not available: no tracked job has this run, or it was pruned")])
    try:
        check_issued_at(incoming.command.issued_at, now)
    except Rejected as rejected:
        return rejected.without_traceback()
    after = retry_run(run, incoming.command.issued_at or now, now)
    runs[incoming.about] = after
    return RetryOutcome(after, "unchanged" if after is run else "scheduled")


def decide_result(runs: MutableMapping[str, Run], result: Result, now: datetime) -> RecordedStatus | Rejected:
    """Apply a result, replace the run in `runs` and return the outcome."""
    before = runs.get(result.event_id)
    if before is not None and before.occurrence is not None and result.tenant not in (
        None, before.occurrence.tenant
    ):
        return Rejected([Problem("event_id", "is not available")])
    run, status = apply_result(before, result, now)
    if run is not before:
        runs[result.event_id] = run
    return status
