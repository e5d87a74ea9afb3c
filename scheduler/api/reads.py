"""What can be looked at: each method takes who asks, and answers no more than that one may see."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeVar
from uuid import UUID

from scheduler import __version__
from scheduler.api import cursors
from scheduler.api.coalesced_reads import CoalescedReads
from scheduler.api.database import Database
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import NotFound, ServiceUnavailable
from scheduler.domain.runs.run import Run
from scheduler.domain.strict_json import parse_object
from scheduler.ops.logs import without_secrets
from scheduler.postgres.audit import AuditFilter, list_audit
from scheduler.postgres.connection import Connection, ping
from scheduler.postgres.jobs.lists import JobFilter, JobRow, find_job, list_jobs
from scheduler.postgres.runs.lists import RunFilter, find_run, list_runs
from scheduler.postgres.stats import list_processes, stats
from scheduler.rabbit import broker_probe
from scheduler.settings import Settings
from scheduler.views.base import Page
from scheduler.views.health import DetailedHealth, ServerHealth
from scheduler.views.jobs import JobView, job_view
from scheduler.views.occurrences import OccurrenceView, PreviewPage, occurrences, preview_page
from scheduler.views.overview import (
    AuditView,
    ReplicaView,
    RoleView,
    StatsView,
    audit_view,
    replica_view,
    role_views,
    stats_view,
    worker_view,
)
from scheduler.views.runs import RunView, WholeRunView, run_view, whole_run_view

Row = TypeVar("Row")
Filter = TypeVar("Filter", JobFilter, RunFilter, AuditFilter)
Position = tuple[datetime, str]
Shown = TypeVar("Shown")
USUAL_LIMIT, MOST_LISTED = 50, 200


class Reads:
    """The service behind every page and every GET."""

    def __init__(self, database: Database, compute: FairThreads, settings: Settings) -> None:
        self._database = database
        self._compute = compute
        self._amqp_urls = settings.amqp_urls
        self._stats: CoalescedReads[str | None, StatsView] = CoalescedReads()

    async def jobs(
        self, who: Identity, wanted: JobFilter, limit: int = USUAL_LIMIT, after: str | None = None
    ) -> Page[JobView]:
        """Return a page of jobs, newest first."""
        check(who, Permission.READ)
        return await self._list("jobs", who, wanted, limit, after, list_jobs, job_view, lambda row: row.position)

    async def job_row(self, who: Identity, job_id: UUID) -> JobRow:
        """Return one job with all that is stored of it; raise NotFound, also for another tenant's."""
        check(who, Permission.READ)
        row = await self._database.read(lambda at: find_job(at, str(job_id)))
        if row is None or who.tenant not in (None, row.job.tenant):
            raise NotFound(f"No job has the id {job_id}.")
        return row

    async def job(self, who: Identity, job_id: UUID) -> JobView:
        """Return one job."""
        return job_view(await self.job_row(who, job_id))

    async def occurrences(
        self, who: Identity, job_id: UUID, *, count: int, start: datetime | None = None,
        end: datetime | None = None,
    ) -> Page[OccurrenceView]:
        """Return when a job runs next, or would."""
        row = await self.job_row(who, job_id)
        now = datetime.now(UTC)
        work = partial(occurrences, row, now, count=count, start=start, end=end)
        return Page(await self._compute.run(work))

    async def preview(self, who: Identity, body: bytes) -> PreviewPage:
        """Return when a schedule would run; raise Rejected in the words that a command would get."""
        check(who, Permission.READ)
        fields, _ = parse_object(body or b"{}", exact="")
        return await self._compute.run(partial(preview_page, fields, datetime.now(UTC)))

    async def runs(
        self, who: Identity, wanted: RunFilter, limit: int = USUAL_LIMIT, after: str | None = None
    ) -> Page[RunView]:
        """Return a page of runs, those due last first."""
        check(who, Permission.READ)
        return await self._list("runs", who, wanted, limit, after, list_runs, run_view, _run_position)

    async def run(self, who: Identity, event_id: UUID) -> WholeRunView:
        """Return one run with its attempts."""
        return whole_run_view(await self.run_row(who, event_id))

    async def run_row(self, who: Identity, event_id: UUID) -> Run:
        """Return one run with all that is stored of it; raise NotFound, also for another tenant's."""
        check(who, Permission.READ)
        run = await self._database.read(lambda at: find_run(at, str(event_id)))
        if run is None or run.occurrence is None or who.tenant not in (None, run.occurrence.tenant):
            raise NotFound(f"No run has the event_id {event_id}.")
        return run

    async def stats(self, who: Identity) -> StatsView:
        """Return the whole at a glance; many who look at once share one look."""
        check(who, Permission.READ)
        return await self._stats.get(who.tenant, lambda: self._look(who.tenant))

    async def _look(self, tenant: str | None) -> StatsView:
        return stats_view(await self._database.search(lambda at: stats(at, tenant)))

    async def replicas(self, who: Identity) -> Page[ReplicaView | RoleView]:
        """Return the processes and workers that were heard of lately; for one tenant, counts and offers only."""
        check(who, Permission.READ)
        replicas, workers = await self._database.read(list_processes)
        if who.tenant is not None:
            return Page(role_views(replicas, workers, who.tenant))
        return Page([*map(replica_view, replicas), *map(worker_view, workers)])

    async def audit(
        self, who: Identity, wanted: AuditFilter, limit: int = USUAL_LIMIT, after: str | None = None
    ) -> Page[AuditView]:
        """Return a page of the audit, newest first."""
        check(who, Permission.AUDIT)
        return await self._list(
            "audit", who, wanted, limit, after, list_audit, audit_view, lambda row: (row.at, row.place)
        )

    async def _list(  # noqa: PLR0917 - the parts of one list
        self, kind: str, who: Identity, wanted: Filter, limit: int, after: str | None,
        search: Callable[[Connection, Filter, int, Position | None], Sequence[Row]], view: Callable[[Row], Shown],
        position: Callable[[Row], Position],
    ) -> Page[Shown]:
        """Return a page of what matches and belongs to a tenant that this one may see."""
        begin = cursors.read(kind, after)
        tenant, visible = visible_tenant(who, wanted.tenant)
        if not visible:
            return Page([])
        narrowed = replace(wanted, tenant=tenant)
        # One row more than a page has, or a cut page, shows that there is a next page.
        rows = await self._database.search(lambda at: search(at, narrowed, limit + 1, begin))
        more = len(rows) > limit or getattr(rows, "cut", False)
        shown = rows[:limit]
        return Page([view(row) for row in shown], cursors.write(kind, *position(shown[-1])) if more else None)

    async def health(self, who: Identity) -> DetailedHealth:
        """Return each server as this process sees it."""
        check(who, Permission.READ)
        postgres = await self._postgres_problem()
        rabbitmq = await asyncio.to_thread(broker_probe.broker_problem, self._amqp_urls)
        servers = {name: ServerHealth(status="unavailable" if found else "ok", problem=found)
                   for name, found in (("postgres", postgres), ("rabbitmq", rabbitmq))}
        status: Literal["ok", "degraded", "unavailable"] = "degraded" if rabbitmq else "ok"
        return DetailedHealth(status="unavailable" if postgres else status, version=__version__, servers=servers)

    async def _postgres_problem(self) -> str | None:
        try:
            await self._database.read(ping)
        except ServiceUnavailable as error:
            return without_secrets(error.detail)
        return None


def _run_position(run: Run) -> Position:
    assert run.occurrence is not None  # noqa: S101 - a list has no runs that are known only from results
    return run.occurrence.due_at, run.event_id
