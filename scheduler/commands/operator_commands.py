"""Apply an operator's command from the API, the console or the command line, and return the changed row.

`execute` applies it like a command from AMQP. While the rows are locked, hooks check that the job or run exists,
that it belongs to the caller's tenant and that its version is the expected one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_results import record_results
from scheduler.commands.audit_entries import run_entry
from scheduler.commands.batch_telemetry import count_recorded
from scheduler.commands.decide_commands import LOCKED, MessageOutcome, RetryOutcome
from scheduler.commands.transaction_hooks import TransactionHooks
from scheduler.domain.caller import Caller
from scheduler.domain.errors import Rejected, SchedulerError, Unavailable
from scheduler.domain.jobs.definition import Definition, Incoming, content, define
from scheduler.domain.jobs.etag import etag
from scheduler.domain.jobs.job import CommandOutcome, Job
from scheduler.domain.messages import ScheduleRequest, ScheduleTrigger
from scheduler.domain.recurrence import RUN_NOW
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import Run
from scheduler.domain.targets.target import restore_credentials
from scheduler.ops import metrics
from scheduler.postgres import audit
from scheduler.postgres.connection import Connection, Cursor
from scheduler.postgres.jobs import lists as jobs
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs import lists as runs


class NoSuchRecord(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """No job or run of the tenant has this id."""


class RowsLocked(Unavailable):
    """Not everything was applied: another session has locked rows for longer than lock_timeout."""

    def __init__(self, locked: str) -> None:
        super().__init__(f"another database session has locked {locked}: retry later")


class RowLocked(RowsLocked):
    """The command was not applied, and may be repeated as it is."""


class AlreadyExists(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """A job with this id exists; `same` if the request defines the same job."""

    def __init__(self, *, same: bool) -> None:
        super().__init__("a job with this id already exists")
        self.same = same


class VersionConflict(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """The job has changed since the caller read it."""


class SupersededCommand(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """A newer command was applied before this one."""


class JobIsCancelled(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """The job is cancelled: a trigger would emit nothing."""


@dataclass(slots=True)
class JobCommandHooks(TransactionHooks):
    """Hooks of an operator's command for one job."""

    incoming: Incoming
    tenant: str | None  # the caller's tenant; None: all tenants
    new: bool = False  # the job must not exist
    if_match: Sequence[str] | None = None  # accepted ETags; `*` for any
    existed: bool = False
    row: JobRow | None = None  # as saved

    def jobs_locked(self, jobs: Mapping[str, Job], now: datetime) -> None:
        """Check the job's existence, tenant and version."""
        job = jobs.get(self.incoming.about)
        self.existed = job is not None and job.definition is not None
        if job is not None and self.tenant is None and "tenant" not in self.incoming.command.model_fields_set:
            self.incoming.tenant = job.tenant
        same_tenant = job is not None and job.tenant == self.incoming.tenant
        self._unmask(job if same_tenant else None)
        if self.new:
            if self.existed and same_tenant and job is not None:
                raise AlreadyExists(same=is_same_request(job, self.incoming, now))
            return  # `execute` rejects the id of another tenant's job
        is_request = isinstance(self.incoming.command, ScheduleRequest)
        if (job is not None and not same_tenant) or not (self.existed or is_request):
            raise NoSuchRecord
        if self.if_match is not None and not self._matches(job):
            raise VersionConflict
        if job is not None and job.stopped and isinstance(self.incoming.command, ScheduleTrigger):
            raise JobIsCancelled

    def _unmask(self, job: Job | None) -> None:
        """Replace masks in the request's target by the stored credentials."""
        command = self.incoming.command
        if isinstance(command, ScheduleRequest) and command.target is not None and command.target.work.has_masks():
            stored = None if job is None or job.definition is None else job.definition.target
            target = restore_credentials(command.target, stored)
            self.incoming.command = command.model_copy(update={"target": target})

    def _matches(self, job: Job | None) -> bool:
        if job is None or not self.existed or self.if_match is None:
            return False
        return "*" in self.if_match or etag(job) in self.if_match

    def saved(self, cursor: Cursor) -> None:
        """Read the saved job."""
        self.row = jobs.find_with(cursor, self.incoming.about)


def raise_unapplied(outcome: MessageOutcome, rows: str) -> None:
    """Raise RowLocked or Rejected if a command was not applied."""
    if outcome is LOCKED:
        raise RowLocked(rows)
    if isinstance(outcome, Rejected):
        raise outcome


def run_command(connection: Connection, hooks: JobCommandHooks, wake_horizon: timedelta) -> JobRow:
    """Apply an operator's command and return the job. Raises Rejected or one of the errors above."""
    hooks.incoming.cancels_delayed = hooks.tenant is None  # the token decides, not the job
    [outcome] = apply_commands(connection, [hooks.incoming], wake_horizon, hooks)
    if isinstance(outcome, Rejected):
        metrics.commands_rejected.labels(outcome.reason.value).inc()
    raise_unapplied(outcome, f"the job {hooks.incoming.about}, or one of its runs")
    assert isinstance(outcome, CommandOutcome)  # noqa: S101 - commands for jobs have no other outcome
    if outcome.status == "superseded":
        raise SupersededCommand
    if outcome.status == "scheduled" and isinstance(hooks.incoming.command, ScheduleRequest):
        metrics.jobs_queued.inc()
    elif outcome.status == "cancelled":
        metrics.jobs_cancelled.inc()
    if hooks.row is None:
        raise NoSuchRecord
    return hooks.row


def is_same_request(job: Job, incoming: Incoming, now: datetime) -> bool:
    """Return whether a request defines the same job as the stored one."""
    assert isinstance(incoming.command, ScheduleRequest)  # noqa: S101 - only requests create jobs
    if job.definition is None or incoming.command.paused not in (None, job.paused):
        return False
    start_given = incoming.command.run_at not in (None, RUN_NOW)
    requested, stored = _normalize(define(incoming, now)), _normalize(job.definition)
    return content(requested, start_given=start_given) == content(stored, start_given=start_given)


def _normalize(definition: Definition) -> Definition:
    payload, target = _normalize_json(definition.payload), definition.target
    return replace(definition, payload=payload, target=None if target is None else _normalize_json(target))


def _normalize_json(text: str) -> str:
    """Return JSON text in normal form; text that is nested too deeply is returned unchanged.

    Fractions keep their digits: as floats, different fractions could be equal.
    """
    try:
        return json.dumps(json.loads(text, parse_float=lambda digits: f"\0{digits}"), sort_keys=True)
    except RecursionError:
        return text


@dataclass(slots=True)
class RunCommandHooks(TransactionHooks):
    """Hooks of an operator's retry, result or cancel of a run."""

    event_id: str
    tenant: str | None
    incoming: Incoming | None = None
    reporter: Caller | None = None  # of a result or cancel; `execute` audits retries itself
    action: str = "result"  # in the audit
    before: Run | None = None
    run: Run | None = None  # as saved

    def runs_locked(self, runs: Mapping[str, Run]) -> None:
        """Check the run's existence and tenant."""
        run = runs.get(self.event_id)
        if run is None or run.occurrence is None or self.tenant not in (None, run.occurrence.tenant):
            raise NoSuchRecord
        self.before = run
        if self.incoming is not None and "tenant" not in self.incoming.command.model_fields_set:
            self.incoming.tenant = run.occurrence.tenant

    def saved(self, cursor: Cursor) -> None:
        """Read the saved run, and audit a result or cancel that changed it."""
        self.run = runs.find_with(cursor, self.event_id)
        if self.reporter is not None and self.run is not None and self.run != self.before:
            audit.write_entries(cursor, [run_entry(self.reporter, self.action, self.before, self.run)])


def retry_run(connection: Connection, incoming: Incoming, tenant: str | None,
              wake_horizon: timedelta) -> tuple[Run, RetryOutcome]:
    """Retry a run; return it and the outcome."""
    hooks = RunCommandHooks(incoming.about, tenant, incoming)
    [outcome] = apply_commands(connection, [incoming], wake_horizon, hooks)
    raise_unapplied(outcome, f"the run {incoming.about}")
    assert isinstance(outcome, RetryOutcome)  # noqa: S101 - retries have no other outcome
    if hooks.run is None:
        raise NoSuchRecord
    return hooks.run, outcome


def report_result(
    connection: Connection, result: Result, tenant: str | None, wake_horizon: timedelta, caller: Caller
) -> Run:
    """Record a result that an operator reports, and return the run."""
    hooks = RunCommandHooks(result.event_id, tenant, reporter=caller)
    [outcome] = record_results(connection, [result], wake_horizon, hooks)
    raise_unapplied(outcome, f"the run {result.event_id}")
    assert isinstance(outcome, str)  # noqa: S101 - results have no other outcome
    count_recorded([(result, outcome)])
    if outcome == "superseded":
        raise SupersededCommand
    if hooks.run is None:
        raise NoSuchRecord
    return hooks.run
