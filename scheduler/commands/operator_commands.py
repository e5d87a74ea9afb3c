"""Commands of people, who wait for what becomes of them: through the API, the console or the command line.

They are applied by the same function as those that come over AMQP. What is asked beside that is judged while the
rows are locked: that the thing is there and theirs, and still as they saw it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from scheduler.commands.apply_batch import execute
from scheduler.commands.apply_results import execute_results
from scheduler.commands.audit_entries import run_entry
from scheduler.commands.batch_telemetry import count_taken
from scheduler.commands.decide_commands import LOCKED, RetryOutcome
from scheduler.commands.transaction_hooks import TransactionHooks
from scheduler.domain.caller import Caller
from scheduler.domain.errors import Rejected, SchedulerError, Unavailable
from scheduler.domain.jobs.definition import Definition, Incoming, content, define
from scheduler.domain.jobs.etag import etag
from scheduler.domain.jobs.job import CommandOutcome, Job
from scheduler.domain.messages import ScheduleRequest, ScheduleTrigger
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import Run
from scheduler.domain.target_credentials import has_masks, restore_credentials
from scheduler.ops import metrics
from scheduler.postgres import audit
from scheduler.postgres.connection import Connection, Cursor
from scheduler.postgres.jobs import lists as jobs
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs import lists as runs


class NoSuchRecord(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """Nothing has that id, or it is another tenant's."""


class RowLocked(Unavailable):
    """Another session has locked the row for so long that the command was not applied."""

    def __init__(self, thing: str) -> None:
        super().__init__(f"another database session has locked {thing}: try again later")


class AlreadyExists(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """A job has that id already; `same` if it is what was asked for."""

    def __init__(self, *, same: bool) -> None:
        super().__init__("a job with this id exists already")
        self.same = same


class VersionConflict(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """The job is not as the caller saw it."""


class SupersededCommand(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """A newer command has overtaken this one."""


class JobIsCancelled(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """The job is cancelled: a trigger would emit nothing."""


@dataclass(slots=True)
class JobCommandHooks(TransactionHooks):
    """A person's command about one job."""

    incoming: Incoming
    tenant: str | None  # whose things the person sees; None: everyone's
    new: bool = False  # the job must not be there yet
    if_match: Sequence[str] | None = None  # ETags, one of which it must have; `*` for any
    existed: bool = False
    row: JobRow | None = None  # as saved

    def jobs_locked(self, known: Mapping[str, Job], now: datetime) -> None:
        """Judge whether the job is there, theirs and as they saw it."""
        job = known.get(self.incoming.about)
        self.existed = job is not None and job.definition is not None
        if job is not None and self.tenant is None and "tenant" not in self.incoming.command.model_fields_set:
            self.incoming.tenant = job.tenant
        theirs = job is not None and job.tenant == self.incoming.tenant
        self._unmask(job if theirs else None)
        if self.new:
            if self.existed and theirs and job is not None:
                raise AlreadyExists(same=_same(job, self.incoming, now))
            return  # another's: rejected as any such command is
        request = isinstance(self.incoming.command, ScheduleRequest)
        if (job is not None and not theirs) or not (self.existed or request):
            raise NoSuchRecord
        if self.if_match is not None and not self._matches(job):
            raise VersionConflict
        if job is not None and job.stopped and isinstance(self.incoming.command, ScheduleTrigger):
            raise JobIsCancelled

    def _unmask(self, job: Job | None) -> None:
        """Put the stored credentials back where the request has the masks that readers are shown."""
        command = self.incoming.command
        if isinstance(command, ScheduleRequest) and command.target is not None and has_masks(command.target):
            stored = None if job is None or job.definition is None else job.definition.target
            target = restore_credentials(command.target, stored)
            self.incoming.command = command.model_copy(update={"target": target})

    def may_cancel_delayed(self, incoming: Incoming) -> bool:  # noqa: ARG002 - the token decides, not the job
        """Return whether the caller sees all tenants."""
        return self.tenant is None

    def _matches(self, job: Job | None) -> bool:
        if job is None or not self.existed or self.if_match is None:
            return False
        return "*" in self.if_match or etag(job) in self.if_match

    def saved(self, cursor: Cursor) -> None:
        """Read the job as it is now."""
        self.row = jobs.find_with(cursor, self.incoming.about)


def run_command(connection: Connection, asked: JobCommandHooks, soon: timedelta) -> JobRow:
    """Apply a person's command and return the job; raise Rejected, or one of the verdicts above."""
    [verdict] = execute(connection, [asked.incoming], soon, asked)
    if verdict is LOCKED:
        raise RowLocked(f"the job {asked.incoming.about}, or one of its runs")
    if isinstance(verdict, Rejected):
        metrics.commands_rejected.labels(verdict.reason.value).inc()
        raise verdict
    assert isinstance(verdict, CommandOutcome)  # noqa: S101 - a command about a job has no other answer
    if verdict.status == "superseded":
        raise SupersededCommand
    if verdict.status == "scheduled" and isinstance(asked.incoming.command, ScheduleRequest):
        metrics.jobs_queued.inc()
    elif verdict.status == "cancelled":
        metrics.jobs_cancelled.inc()
    if asked.row is None:
        raise NoSuchRecord
    return asked.row


def _same(job: Job, incoming: Incoming, now: datetime) -> bool:
    """Tell whether a request asks for what the job is already."""
    assert isinstance(incoming.command, ScheduleRequest)  # noqa: S101 - nothing else makes a new job
    start_given = incoming.command.run_at is not None
    asked = content(_same_text(define(incoming, now)), start_given=start_given)
    return job.definition is not None and asked == content(_same_text(job.definition), start_given=start_given)


def _same_text(definition: Definition) -> Definition:
    payload, target = _text_of(definition.payload), definition.target
    return replace(definition, payload=payload, target=None if target is None else _text_of(target))


def _text_of(text: str) -> str:
    """Return a JSON text in the one spelling of all that mean the same; one that is nested too deeply as it is.

    Fractions stay as they are written: as floats, different ones could be the same.
    """
    try:
        return json.dumps(json.loads(text, parse_float=lambda written: f"\0{written}"), sort_keys=True)
    except RecursionError:
        return text


@dataclass(slots=True)
class RunCommandHooks(TransactionHooks):
    """A person's retry of a run, or a result that they report."""

    event_id: str
    tenant: str | None
    incoming: Incoming | None = None
    reporter: Caller | None = None  # of a result; the audit tells of retries whoever gave them
    before: Run | None = None
    run: Run | None = None  # as saved

    def runs_locked(self, known: Mapping[str, Run]) -> None:
        """Judge whether the run is there and theirs."""
        run = known.get(self.event_id)
        if run is None or run.occurrence is None or self.tenant not in (None, run.occurrence.tenant):
            raise NoSuchRecord
        self.before = run
        if self.incoming is not None and "tenant" not in self.incoming.command.model_fields_set:
            self.incoming.tenant = run.occurrence.tenant

    def saved(self, cursor: Cursor) -> None:
        """Read the run as it is now."""
        self.run = runs.find_with(cursor, self.event_id)
        if self.reporter is not None and self.run is not None and self.run != self.before:
            audit.write_entries(cursor, [run_entry(self.reporter, "result", self.before, self.run)])


def retry_run(connection: Connection, incoming: Incoming, tenant: str | None,
              soon: timedelta) -> tuple[Run, RetryOutcome]:
    """Give a run a fresh set of attempts; return it, and what became of the command."""
    asked = RunCommandHooks(incoming.about, tenant, incoming)
    [verdict] = execute(connection, [incoming], soon, asked)
    if verdict is LOCKED:
        raise RowLocked(f"the run {incoming.about}")
    if isinstance(verdict, Rejected):
        raise verdict
    assert isinstance(verdict, RetryOutcome)  # noqa: S101 - a retry has no other answer
    if asked.run is None:
        raise NoSuchRecord
    return asked.run, verdict


def report_result(
    connection: Connection, result: Result, tenant: str | None, soon: timedelta, caller: Caller
) -> Run:
    """Record a result that a person reports, and return the run."""
    asked = RunCommandHooks(result.event_id, tenant, reporter=caller)
    [verdict] = execute_results(connection, [result], soon, asked)
    if verdict is LOCKED:
        raise RowLocked(f"the run {result.event_id}")
    if isinstance(verdict, Rejected):
        raise verdict
    assert isinstance(verdict, str)  # noqa: S101 - a result has no other answer
    count_taken([(result, verdict)])
    if verdict == "superseded":
        raise SupersededCommand
    if asked.run is None:
        raise NoSuchRecord
    return asked.run
