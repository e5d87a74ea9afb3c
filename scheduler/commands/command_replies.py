"""Build the replies to commands and results."""

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


def reply_to(outcome: MessageOutcome, named_id: str | None) -> ContractMessage:
    """Return the reply to a message; `named_id` is the id of its job or run, if that could be parsed."""
    match outcome:
        case Rejected():
            errors = [FieldProblem(field=problem.field, problem=problem.problem) for problem in outcome.problems]
            return ScheduleRejected(id=named_id, errors=errors)
        case CommandOutcome():
            job = outcome.job
            return ScheduleAccepted(id=UUID(job.id), status=outcome.status, next_run_at=job.next_run_at)
        case RetryOutcome():
            run = outcome.run
            return ScheduleAccepted(id=UUID(run.event_id), status=outcome.status, next_run_at=run.retry_at)
        case ReceiveOutcome():
            raise TypeError("delayed messages have no reply")
        case Locked():
            raise TypeError("a locked message has no reply yet")
        case _:
            return ScheduleRecorded(event_id=UUID(named_id), status=outcome)
