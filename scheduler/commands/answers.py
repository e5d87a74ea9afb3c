"""The words of the answers: what a host hears about its command, whichever way it came."""

from uuid import UUID

from scheduler.commands.judging import Verdict
from scheduler.domain.errors import Rejected
from scheduler.domain.messages import FieldProblem, ScheduleAccepted, ScheduleRejected


def answer(verdict: Verdict, named_id: str | None) -> ScheduleAccepted | ScheduleRejected:
    """Return the answer to a command; `named_id` is the id that a rejected one named, where it could be read."""
    if isinstance(verdict, Rejected):
        errors = [FieldProblem(field=each.field, problem=each.problem) for each in verdict.problems]
        return ScheduleRejected(id=named_id, errors=errors)
    job = verdict.job
    return ScheduleAccepted(id=UUID(job.id), status=verdict.status, next_run_at=job.next_run_at)
