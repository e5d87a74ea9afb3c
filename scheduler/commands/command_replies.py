"""The words of the answers: what a host hears about its command, whichever way it came."""

from uuid import UUID

from scheduler.commands.decide_commands import Locked, MessageOutcome, RetryOutcome
from scheduler.domain.delayed.message import ReceiveOutcome
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.domain.messages import (
    ContractMessage,
    FieldProblem,
    ScheduleAccepted,
    ScheduleRecorded,
    ScheduleRejected,
)


def reply_to(verdict: MessageOutcome, named_id: str | None) -> ContractMessage:
    """Return the answer to a message; `named_id` is what it named, a job or a run, if that could be read."""
    match verdict:
        case Rejected():
            errors = [FieldProblem(field=each.field, problem=each.problem) for each in verdict.problems]
            return ScheduleRejected(id=named_id, errors=errors)
        case CommandOutcome():
            job = verdict.job
            return ScheduleAccepted(id=UUID(job.id), status=verdict.status, next_run_at=job.next_run_at)
        case RetryOutcome():
            run = verdict.run
            return ScheduleAccepted(id=UUID(run.event_id), status=verdict.status, next_run_at=run.retry_at)
        case ReceiveOutcome():
            raise TypeError("a delayed message is not answered")
        case Locked():
            raise TypeError("a message that was not stored is not answered")
        case _:
            return ScheduleRecorded(event_id=UUID(named_id), status=verdict)
