"""What a batch of commands makes of the jobs that it is about: pure, whoever stores them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import Job, Outcome, apply
from scheduler.ops.logs import get_logger

log = get_logger(__name__)

Verdict = Outcome | Rejected


def judge(
    known: Mapping[str, Job], batch: Sequence[Incoming], now: datetime
) -> tuple[list[Verdict], dict[str, Job]]:
    """Return what became of each command, in order, and the jobs as they are afterwards, by id."""
    jobs = dict(known)
    verdicts: list[Verdict] = []
    for index, incoming in enumerate(batch):
        # Commands of one batch without issued_at keep their order: a microsecond each.
        verdict = _judge(jobs.get(incoming.job_id), incoming, now + timedelta(microseconds=index))
        verdicts.append(verdict)
        if isinstance(verdict, Outcome):
            jobs[incoming.job_id] = verdict.job
    return verdicts, jobs


def _judge(job: Job | None, incoming: Incoming, now: datetime) -> Verdict:
    try:
        return apply(job, incoming, now)
    except Rejected as verdict:
        return verdict.kept()
    except Exception:
        # As with parsing: what nobody thought of concerns this one command.
        log.exception("command cannot be applied", job_id=incoming.job_id,
                      do="report it, with the message in scheduler_dead")
        return Rejected([Problem("body", "cannot be applied: an error of the scheduler's own, see its log")])
