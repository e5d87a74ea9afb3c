"""Writes of the API and the console: each checks the caller's role, then runs the code of an AMQP command."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from scheduler.api.database import Database
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import Conflict, NotFound, PreconditionFailed, TooManyRequests, Unprocessable
from scheduler.api.rate_limit import usage_of_request
from scheduler.commands import bulk_commands, operator_commands
from scheduler.commands.cancel_run import RunHasEnded, cancel_run
from scheduler.commands.import_jobs import store_import
from scheduler.commands.operator_commands import (
    AlreadyExists,
    JobCommandHooks,
    JobIsCancelled,
    NoSuchRecord,
    SupersededCommand,
    VersionConflict,
)
from scheduler.commands.purge_job import purge_job
from scheduler.commands.replayed_letters import apply_letter
from scheduler.commands.tenancy import Tenancy
from scheduler.commands.undo_batch import undo_step
from scheduler.domain.caller import Caller
from scheduler.domain.errors import Problem
from scheduler.domain.jobs.definition import Incoming, can_precompute_schedule, precompute_schedule
from scheduler.domain.jobs.job import Job
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.domain.runs.run import Run
from scheduler.domain.time_ordered_id import time_ordered_id
from scheduler.domain.trace_context import trace_context
from scheduler.postgres.audit import AuditEntry, write_entry
from scheduler.postgres.connection import Connection
from scheduler.postgres.jobs.lists import JobFilter, JobRow, find_job
from scheduler.postgres.runs.lists import RunFilter
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.settings import Settings
from scheduler.views.jobs import request_text
from scheduler.views.runs import WholeRunView, whole_run_view

MAX_BULK_ACTIONS = 2  # per tenant at a time
Stopped = Callable[[], Awaitable[bool]]
_NO_FILTER = Problem("query", "must have at least one filter: without one, everything would match")
_SUPERSEDED = "A newer command was applied before this one."


async def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ActionNote:
    """Details of an action for the audit: its reason, and the bulk action it belongs to."""

    batch: UUID | None = None
    reason: str | None = None


NO_NOTE = ActionNote()


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The job after an action, and whether the action created it."""

    row: JobRow
    created: bool = False


class Actions:
    """Performs the writes of the API and the console."""

    def __init__(self, database: Database, compute: FairThreads, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._compute = compute
        self._max_payload_bytes = settings.max_payload_bytes
        self._tenancy = Tenancy.of("field", (), settings.tenant_routes)
        self._bulk_actions: Counter[str | None] = Counter()  # running, by tenant
        self._wakeup_horizon = timedelta(milliseconds=settings.poll_interval_ms + 100)

    async def create(self, who: Identity, body: bytes) -> ActionResult:
        """Create a job. Repeating the request changes nothing; a different request with its id is a conflict."""
        check(who, Permission.WRITE)
        incoming = self._parse(who, "request", body, defaults={"id": str(time_ordered_id())})
        try:
            created = await self._run_command(JobCommandHooks(incoming, who.tenant, new=True))
            return ActionResult(created, created=True)
        except AlreadyExists as existing:
            if not existing.same:
                raise Conflict(f"The job {incoming.about} already exists; use PUT to replace it.") from None
            row = await self._database.read_primary(lambda at: find_job(at, incoming.about))
            if row is None:
                raise Conflict("The job was deleted while this request was processed; retry.") from None
            return ActionResult(row)

    async def replace(
        self, who: Identity, job_id: UUID, body: bytes, if_match: Sequence[str] | None = None
    ) -> ActionResult:
        """Create a job, or replace an existing one."""
        check(who, Permission.WRITE)
        hooks = JobCommandHooks(self._parse(who, "request", body, job_id), who.tenant, if_match=if_match)
        row = await self._run_command(hooks)
        return ActionResult(row, created=not hooks.existed)

    async def command(  # noqa: PLR0917 - the parts of one command
        self, who: Identity, kind: str, job_id: UUID, body: bytes = b"", if_match: Sequence[str] | None = None,
        note: ActionNote = NO_NOTE,
    ) -> ActionResult:
        """Cancel, pause, resume or trigger a job."""
        check(who, Permission.WRITE)
        incoming = self._parse(who, kind, body, job_id)
        incoming.caller = caller_of(who, note)
        return ActionResult(await self._run_command(JobCommandHooks(incoming, who.tenant, if_match=if_match)))

    async def request_all(self, who: Identity, bodies: Sequence[bytes], note: ActionNote) -> None:
        """Request jobs of one bulk action. Raises Unprocessable if some are rejected."""
        check(who, Permission.WRITE)
        requests = [self._parse(who, "request", body) for body in bodies]
        for incoming in requests:
            incoming.caller = caller_of(who, note)
        results = await self._database.write(lambda at: store_import(at, requests, self._wakeup_horizon))
        if problems := [problem for result in results if not isinstance(result, str) for problem in result]:
            raise Unprocessable(problems)

    async def restore(self, who: Identity, version: Job) -> ActionResult:
        """Request a stored version of a job again."""
        check(who, Permission.WRITE)
        incoming = self._parse(who, "request", request_text(version, masked=False).encode(), UUID(version.id))
        incoming.restores = True
        return ActionResult(await self._run_command(JobCommandHooks(incoming, who.tenant)))

    async def purge(self, who: Identity, job_id: UUID) -> None:
        """Erase everything about a job; a tombstone remains."""
        check(who, Permission.PURGE)
        try:
            await self._database.write(lambda at: purge_job(at, str(job_id), who.tenant, caller_of(who)))
        except NoSuchRecord:
            raise NotFound(f"No job has the id {job_id}.") from None

    async def retry(self, who: Identity, event_id: UUID, body: bytes = b"") -> WholeRunView:
        """Retry a dead or cancelled run with its full number of attempts."""
        check(who, Permission.WRITE)
        fixed_fields = {"event_id": str(event_id)} | _tenant(who)
        incoming = parse_command(
            "retry", body or b"{}", max_payload_bytes=self._max_payload_bytes, fixed_fields=fixed_fields
        )
        incoming.caller = caller_of(who)
        return await self._write_run(event_id, lambda at: operator_commands.retry_run(
            at, incoming, who.tenant, self._wakeup_horizon)[0])

    async def cancel_run(self, who: Identity, event_id: UUID) -> WholeRunView:
        """Cancel an open run. A cancelled run stays as it is."""
        check(who, Permission.WRITE)
        return await self._write_run(event_id, lambda at: cancel_run(
            at, str(event_id), who.tenant, self._wakeup_horizon, caller_of(who)))

    async def result(self, who: Identity, event_id: UUID, body: bytes) -> WholeRunView:
        """Record the result of an attempt."""
        check(who, Permission.WRITE)
        result = parse_result("result", body or b"{}", fixed_fields={"event_id": str(event_id)} | _tenant(who))
        return await self._write_run(event_id, lambda at: operator_commands.report_result(
            at, result, who.tenant, self._wakeup_horizon, caller_of(who)))

    async def _write_run(self, event_id: UUID, change: Callable[[Connection], Run]) -> WholeRunView:
        try:
            return whole_run_view(await self._database.write(change))
        except NoSuchRecord:
            raise NotFound(f"No run has the event_id {event_id}.") from None
        except RunHasEnded as ended:
            raise Conflict(f"{str(ended).capitalize()}.") from None
        except SupersededCommand:
            raise Conflict("The result is for an earlier attempt; a newer one has started.") from None

    async def apply_letter(self, who: Identity, letter: DeadLetter) -> None:
        """Apply a rejected command or result again, as its original broker user."""
        check(who, Permission.DEAD_LETTERS)
        await self._database.write(lambda at: apply_letter(at, letter, self._settings, self._wakeup_horizon))

    async def all_jobs(
        self, who: Identity, verb: str, filters: JobFilter, stopped: Stopped = _never, note: ActionNote = NO_NOTE
    ) -> int:
        """Pause, resume or cancel all matching jobs. Returns the number that matched before `stopped`."""
        check(who, Permission.WRITE)
        _check_filter(filters)
        tenant, visible = visible_tenant(who, filters.tenant)
        step = bulk_commands.job_step(
            verb, replace(filters, tenant=tenant), caller_of(who, note), self._wakeup_horizon)
        return await self._apply_steps(who, step, stopped) if visible else 0

    async def chosen_jobs(self, who: Identity, verb: str, ids: Sequence[UUID], note: ActionNote) -> int:
        """Pause, resume or cancel chosen jobs of the caller's tenant. Returns how many were changed."""
        check(who, Permission.WRITE)
        step = bulk_commands.chosen_step(verb, [str(job_id) for job_id in ids], who.tenant, caller_of(who, note),
                                         self._wakeup_horizon)
        return await self._apply_steps(who, step, _never)

    async def all_runs(
        self, who: Identity, filters: RunFilter, stopped: Stopped = _never, note: ActionNote = NO_NOTE
    ) -> int:
        """Retry all matching runs that have failed. Returns the number that matched before `stopped`."""
        check(who, Permission.WRITE)
        _check_filter(filters)
        tenant, visible = visible_tenant(who, filters.tenant)
        step = bulk_commands.retry_step(
            replace(filters, tenant=tenant), caller_of(who, note), self._wakeup_horizon)
        return await self._apply_steps(who, step, stopped) if visible else 0

    async def undo_batch(self, who: Identity, batch: UUID, note: ActionNote) -> int:
        """Undo a bulk action for the jobs that nothing has changed since. Returns how many were changed."""
        check(who, Permission.WRITE)
        step = undo_step(str(batch), who.tenant, caller_of(who, note), self._wakeup_horizon)
        return await self._apply_steps(who, step, _never)

    async def _apply_steps(self, who: Identity, step: bulk_commands.Step, stopped: Stopped) -> int:
        """Apply the steps. Limits a tenant's bulk actions, so that connections remain for other tenants."""
        if who.tenant is not None and self._bulk_actions[who.tenant] >= MAX_BULK_ACTIONS:
            raise TooManyRequests(f"{MAX_BULK_ACTIONS} bulk actions of this tenant are already running.", 5)
        if (usage := usage_of_request.get()) is not None:
            usage.exempt()
        progress = bulk_commands.BulkProgress()
        self._bulk_actions[who.tenant] += 1
        try:
            while not progress.done and not await stopped():
                current = progress
                progress = await self._database.write(lambda at: step(at, current))  # noqa: B023 - awaited at once
        finally:
            self._bulk_actions[who.tenant] -= 1
        return progress.matched

    async def note(self, who: Identity, action: str, kind: str, thing: str, after: Mapping[str, Any]) -> None:
        """Write an audit entry for an action that did not change the database."""
        entry = AuditEntry(caller_of(who), action, kind, thing, who.tenant or "*", after=json.dumps(after))
        await self._database.write(lambda at: write_entry(at, [entry]))

    def _parse(
        self, who: Identity, kind: str, body: bytes, job_id: UUID | None = None,
        defaults: dict[str, str] | None = None,
    ) -> Incoming:
        fixed_fields = _tenant(who) if job_id is None else {"id": str(job_id)} | _tenant(who)
        incoming = parse_command(
            kind, body or b"{}", max_payload_bytes=self._max_payload_bytes, fixed_fields=fixed_fields,
            defaults=defaults or {},
        )
        self._tenancy.check_route(incoming)
        incoming.caller = caller_of(who)
        incoming.traceparent, incoming.tracestate = trace_context(who.traceparent, who.tracestate)
        return incoming

    async def _run_command(self, hooks: JobCommandHooks) -> JobRow:
        try:
            if can_precompute_schedule(hooks.incoming):  # before a connection is claimed
                await self._compute.run(partial(precompute_schedule, hooks.incoming))
            return await self._database.write(
                lambda at: operator_commands.run_command(at, hooks, self._wakeup_horizon))
        except NoSuchRecord:
            raise NotFound(f"No job has the id {hooks.incoming.about}.") from None
        except VersionConflict:
            raise PreconditionFailed("The job has changed or does not exist: If-Match does not match.") from None
        except JobIsCancelled:
            raise Conflict("The job is cancelled: a trigger emits nothing. Use PUT to request it again.") from None
        except SupersededCommand:
            raise Conflict(_SUPERSEDED) from None


def _check_filter(filters: JobFilter | RunFilter) -> None:
    """Raise Unprocessable for a bulk action without a filter, or with an empty value (a likely client bug)."""
    values = {name: value for name, value in asdict(filters).items() if value is not None}
    if not values:
        raise Unprocessable([_NO_FILTER])
    if empty := [name for name, value in values.items() if value == ""]:
        raise Unprocessable([Problem(name, "must not be empty") for name in empty])


def caller_of(who: Identity, note: ActionNote = NO_NOTE) -> Caller:
    """Return the caller for the audit."""
    return Caller(who.sub, who.via, who.address, str(note.batch) if note.batch else None, note.reason)


def _tenant(who: Identity) -> dict[str, str]:
    return {} if who.tenant is None else {"tenant": who.tenant}
