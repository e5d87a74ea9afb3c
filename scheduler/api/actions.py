"""What can be done: each method takes who asks, and goes the way that a command over AMQP goes."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from scheduler.api.database import Database
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import Conflict, NotFound, PreconditionFailed, TooManyRequests, Unprocessable
from scheduler.api.rate_limit import usage_of_request
from scheduler.commands import bulk_commands, operator_commands
from scheduler.commands.operator_commands import (
    AlreadyExists,
    JobCommandHooks,
    JobIsCancelled,
    NoSuchRecord,
    SupersededCommand,
    VersionConflict,
)
from scheduler.commands.replayed_letters import apply_letter
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.caller import Caller, Via
from scheduler.domain.errors import Problem
from scheduler.domain.jobs.definition import Incoming, can_precompute_schedule, precompute_schedule
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.domain.trace_context import trace_context
from scheduler.postgres.audit import AuditEntry, write_entry
from scheduler.postgres.jobs.lists import JobFilter, JobRow, find_job
from scheduler.postgres.runs.lists import RunFilter
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.settings import Settings
from scheduler.views.runs import WholeRunView, whole_run_view

MOST_BULK_ACTIONS = 2  # of one tenant at once
Stopped = Callable[[], Awaitable[bool]]
_NO_FILTER = Problem("query", "must have at least one filter: this would be about everything")
_OVERTAKEN = "A newer command has overtaken this one."


async def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The job after an action, and whether the action made it."""

    row: JobRow
    created: bool = False


class Actions:
    """The service behind every button and every write."""

    def __init__(self, database: Database, compute: FairThreads, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._compute = compute
        self._most = settings.max_payload_bytes
        self._tenancy = Tenancy.of("field", (), settings.tenant_routes)
        self._bulk_actions: Counter[str | None] = Counter()  # running ones by tenant
        self._soon = timedelta(milliseconds=settings.poll_interval_ms + 100)

    async def create(self, who: Identity, body: bytes) -> ActionResult:
        """Make a job; the same request again changes nothing, another one with its id is a conflict."""
        check(who, Permission.WRITE)
        incoming = self._read(who, "request", body, defaults={"id": str(uuid4())})
        try:
            return ActionResult(await self._ask(JobCommandHooks(incoming, who.tenant, new=True)), created=True)
        except AlreadyExists as found:
            if not found.same:
                raise Conflict(f"The job {incoming.about} exists already; PUT replaces it.") from None
            row = await self._database.read(lambda at: find_job(at, incoming.about))
            if row is None:
                raise Conflict("It was there a moment ago, and is gone; ask again.") from None
            return ActionResult(row)

    async def replace(
        self, who: Identity, job_id: UUID, body: bytes, if_match: Sequence[str] | None = None
    ) -> ActionResult:
        """Make a job, or put another request in its place."""
        check(who, Permission.WRITE)
        asked = JobCommandHooks(self._read(who, "request", body, job_id), who.tenant, if_match=if_match)
        row = await self._ask(asked)
        return ActionResult(row, created=not asked.existed)

    async def command(
        self, who: Identity, kind: str, job_id: UUID, body: bytes = b"", if_match: Sequence[str] | None = None
    ) -> ActionResult:
        """Cancel, pause, resume or trigger a job."""
        check(who, Permission.WRITE)
        incoming = self._read(who, kind, body, job_id)
        return ActionResult(await self._ask(JobCommandHooks(incoming, who.tenant, if_match=if_match)))

    async def retry(self, who: Identity, event_id: UUID, body: bytes = b"") -> WholeRunView:
        """Give a run a fresh set of attempts, if it was given up or cancelled."""
        check(who, Permission.WRITE)
        beside = {"event_id": str(event_id)} | _tenant(who)
        incoming = parse_command("retry", body or b"{}", max_payload_bytes=self._most, fixed_fields=beside)
        incoming.caller = _caller(who)
        try:
            run, _ = await self._database.write(lambda at: operator_commands.retry_run(at, incoming, who.tenant,
                                                                                   self._soon))
        except NoSuchRecord:
            raise NotFound(f"No run has the event_id {event_id}.") from None
        return whole_run_view(run)

    async def result(self, who: Identity, event_id: UUID, body: bytes) -> WholeRunView:
        """Record what became of an attempt."""
        check(who, Permission.WRITE)
        result = parse_result("result", body or b"{}", fixed_fields={"event_id": str(event_id)} | _tenant(who))
        try:
            return whole_run_view(
                await self._database.write(
                    lambda at: operator_commands.report_result(at, result, who.tenant, self._soon, _caller(who))
                )
            )
        except NoSuchRecord:
            raise NotFound(f"No run has the event_id {event_id}.") from None
        except SupersededCommand:
            raise Conflict("It is about an earlier attempt, and comes too late.") from None

    async def apply_letter(self, who: Identity, letter: DeadLetter) -> None:
        """Apply a rejected command or result again, as its original broker user."""
        check(who, Permission.DEAD_LETTERS)
        await self._database.write(lambda at: apply_letter(at, letter, self._settings, self._soon))

    async def all_jobs(self, who: Identity, verb: str, wanted: JobFilter, stopped: Stopped = _never) -> int:
        """Pause, resume or cancel all jobs that match; return how many matched until it was stopped."""
        check(who, Permission.WRITE)
        _check_filter(wanted)
        tenant, any_ = visible_tenant(who, wanted.tenant)
        step = bulk_commands.job_step(verb, replace(wanted, tenant=tenant), _caller(who), self._soon)
        return await self._all(who, step, stopped) if any_ else 0

    async def all_runs(self, who: Identity, wanted: RunFilter, stopped: Stopped = _never) -> int:
        """Retry all runs that match, as far as they have failed; return how many matched until it was stopped."""
        check(who, Permission.WRITE)
        _check_filter(wanted)
        tenant, any_ = visible_tenant(who, wanted.tenant)
        step = bulk_commands.retry_step(replace(wanted, tenant=tenant), _caller(who), self._soon)
        return await self._all(who, step, stopped) if any_ else 0

    async def _all(self, who: Identity, step: bulk_commands.Step, stopped: Stopped) -> int:
        """Apply the steps; one tenant's bulk actions leave connections for the writes of others."""
        if who.tenant is not None and self._bulk_actions[who.tenant] >= MOST_BULK_ACTIONS:
            raise TooManyRequests(f"{MOST_BULK_ACTIONS} bulk actions of this tenant are running.", 5)
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
        """Have the audit tell of what was done elsewhere than in the database."""
        entry = AuditEntry(_caller(who), action, kind, thing, who.tenant or "*", after=json.dumps(after))
        await self._database.write(lambda at: write_entry(at, [entry]))

    def _read(
        self, who: Identity, kind: str, body: bytes, job_id: UUID | None = None,
        defaults: dict[str, str] | None = None,
    ) -> Incoming:
        beside = _tenant(who) if job_id is None else {"id": str(job_id)} | _tenant(who)
        incoming = parse_command(
            kind, body or b"{}", max_payload_bytes=self._most, fixed_fields=beside, defaults=defaults or {}
        )
        self._tenancy.check_route(incoming)
        incoming.caller = _caller(who)
        incoming.traceparent, incoming.tracestate = trace_context(who.traceparent, who.tracestate)
        return incoming

    async def _ask(self, asked: JobCommandHooks) -> JobRow:
        try:
            if can_precompute_schedule(asked.incoming):  # before a connection is taken
                await self._compute.run(partial(precompute_schedule, asked.incoming))
            return await self._database.write(lambda at: operator_commands.run_command(at, asked, self._soon))
        except NoSuchRecord:
            raise NotFound(f"No job has the id {asked.incoming.about}.") from None
        except VersionConflict:
            raise PreconditionFailed("The job was changed since, or is not there: its ETag is another.") from None
        except JobIsCancelled:
            raise Conflict("The job is cancelled: a trigger emits nothing. PUT requests it again.") from None
        except SupersededCommand:
            raise Conflict(_OVERTAKEN) from None


def _check_filter(wanted: JobFilter | RunFilter) -> None:
    """Raise Unprocessable for a bulk action without a filter, or with an empty one, which a program left out."""
    given = {name: value for name, value in asdict(wanted).items() if value is not None}
    if not given:
        raise Unprocessable([_NO_FILTER])
    if empty := [name for name, value in given.items() if value == ""]:
        raise Unprocessable([Problem(name, "must not be empty") for name in empty])


def _caller(who: Identity) -> Caller:
    return Caller(who.sub, Via.API, who.address)


def _tenant(who: Identity) -> dict[str, str]:
    return {} if who.tenant is None else {"tenant": who.tenant}
