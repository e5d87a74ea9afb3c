"""Build the replies to commands and results."""

from uuid import UUID

from scheduler.commands.decide_commands import Locked, MessageOutcome, RetryOutcome
from scheduler.domain.calendars import CalendarOutcome
from scheduler.domain.delayed.message import ReceiveOutcome
from scheduler.domain.errors import Rejected, Unparsed
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.domain.message_parser import id_in_body, name_in_body
from scheduler.domain.messages import (
    CalendarAccepted,
    CalendarRejected,
    ContractMessage,
    FieldProblem,
    ScheduleAccepted,
    ScheduleCalendar,
    ScheduleRecorded,
    ScheduleRejected,
)

_SENT_AS: dict[type[ContractMessage], str] = {
    CalendarAccepted: ScheduleAccepted.__name__, CalendarRejected: ScheduleRejected.__name__,
}


def message_type(reply: ContractMessage) -> str:
    """Return the AMQP type of a reply."""
    return _SENT_AS.get(type(reply)) or type(reply).__name__


def rejection(rejected: Rejected, routing_key: str, body: bytes) -> ContractMessage:
    """Return the reply to a rejected command, with its id or the name of its calendar if it is readable."""
    if isinstance(rejected, Unparsed):
        body = b""  # do not parse a large body again
    if routing_key == ScheduleCalendar.kind:
        return CalendarRejected(name=name_in_body(body), errors=_errors(rejected))
    return reply_to(rejected, id_in_body(body))


def reply_to(outcome: MessageOutcome, named_id: str | None) -> ContractMessage:
    """Return the reply to a message; `named_id` is the id of its job or run, if that could be parsed."""
    match outcome:
        case Rejected():
            return ScheduleRejected(id=named_id, errors=_errors(outcome))
        case CommandOutcome():
            job = outcome.job
            return ScheduleAccepted(id=UUID(job.id), status=outcome.status, next_run_at=job.next_run_at)
        case CalendarOutcome():
            stored = outcome.calendar
            return CalendarAccepted(
                name=stored.name, tenant=stored.tenant, status=outcome.status, version=stored.version
            )
        case RetryOutcome():
            run = outcome.run
            return ScheduleAccepted(id=UUID(run.event_id), status=outcome.status, next_run_at=run.retry_at)
        case ReceiveOutcome():
            raise TypeError("delayed messages have no reply")
        case Locked():
            raise TypeError("a locked message has no reply yet")
        case _:
            return ScheduleRecorded(event_id=UUID(named_id), status=outcome)


def _errors(rejected: Rejected) -> list[FieldProblem]:
    return [FieldProblem(field=problem.field, problem=problem.problem) for problem in rejected.problems]
