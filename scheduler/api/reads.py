"""Read jobs, runs and statistics. Each method returns only data that the caller may see."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from scheduler.api import cursors
from scheduler.api.coalesced_reads import CoalescedReads
from scheduler.api.database import Database
from scheduler.api.detailed_health import detailed_health
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import NotFound
from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.handler_catalogue import HandlerOffer
from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence.adjustment_fields import FindCalendar
from scheduler.domain.recurrence.business_calendar import BusinessCalendar
from scheduler.domain.runs.run import Run
from scheduler.domain.strict_json import parse_object
from scheduler.domain.tenants import CALENDAR_NAME_PATTERN, DEFAULT_TENANT, TENANT_PATTERN
from scheduler.postgres.audit import AuditFilter, StatusChange, list_audit, status_changes
from scheduler.postgres.connection import Connection
from scheduler.postgres.effective_calendars import TenantCalendar, read_effective
from scheduler.postgres.jobs.lists import JobFilter, JobRow, find_job, list_jobs, list_late_jobs
from scheduler.postgres.jobs.search import names_of_jobs
from scheduler.postgres.jobs.versions import NEWEST, list_versions
from scheduler.postgres.runs.lists import RunFilter, find_run, list_runs, names_of_runs, statuses_of_runs
from scheduler.postgres.stats import find_handler, list_job_types, list_processes, stats
from scheduler.settings import Settings
from scheduler.views.base import Page
from scheduler.views.health import DetailedHealth
from scheduler.views.job_types import JobTypeView, job_type_views
from scheduler.views.job_versions import JobVersionView, version_view
from scheduler.views.jobs import JobView, job_view
from scheduler.views.occurrences import PreviewPage, occurrences_page, preview_page
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
Item = TypeVar("Item")
DEFAULT_LIMIT, MAX_LIMIT = 50, 200


class Reads:
    """The service behind every page and every GET."""

    def __init__(self, database: Database, compute: FairThreads, settings: Settings) -> None:
        self._database = database
        self._compute = compute
        self._amqp_urls = settings.amqp_urls
        self._stats: CoalescedReads[str | None, StatsView] = CoalescedReads()
        self._health: CoalescedReads[None, DetailedHealth] = CoalescedReads(most_seconds=1.0)

    async def jobs(
        self, who: Identity, filters: JobFilter, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[JobView]:
        """Return a page of jobs, newest first."""
        check(who, Permission.READ)
        return await self._list("jobs", who, filters, limit, after, list_jobs, job_view, lambda row: row.position)

    async def late_jobs(
        self, who: Identity, filters: JobFilter, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[JobView]:
        """Return a page of the jobs that are due and not emitted, the longest late first."""
        rows = await self.late_job_rows(who, filters, limit, after)
        return Page([job_view(row) for row in rows.items], rows.next)

    async def late_job_rows(
        self, who: Identity, filters: JobFilter, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[JobRow]:
        """Return the stored jobs of a page of late jobs."""
        check(who, Permission.READ)
        if filters.status not in (None, "pending"):
            return Page([])
        filters = replace(filters, status="pending")
        return await self._list(
            "late", who, filters, limit, after, list_late_jobs, lambda row: row, lambda row: row.due_position
        )

    async def job_row(self, who: Identity, job_id: UUID) -> JobRow:
        """Return one stored job. Raises NotFound, also for another tenant's job."""
        check(who, Permission.READ)
        row = await self._database.read(lambda at: find_job(at, str(job_id)))
        if row is None or who.tenant not in (None, row.job.tenant):
            raise NotFound(f"No job has the id {job_id}.")
        return row

    async def job(self, who: Identity, job_id: UUID) -> JobView:
        """Return one job."""
        return job_view(await self.job_row(who, job_id))

    async def versions(
        self, who: Identity, job_id: UUID, limit: int, after: str | None = None
    ) -> Page[JobVersionView]:
        """Return a page of the requests that defined a job, newest first."""
        job = (await self.job_row(who, job_id)).job
        before = cursors.read_number(after) if after is not None else NEWEST
        stored = await self._database.search(lambda at: list_versions(at, job, limit, before))
        last = stored[-1].version if stored else 1
        more = last > 1 and bool(await self._database.search(lambda at: list_versions(at, job, 1, last)))
        return Page([version_view(version) for version in stored], str(last) if more else None)

    async def version(self, who: Identity, job_id: UUID, number: int) -> Job:
        """Return the job as one version defined it. Raises NotFound."""
        job = (await self.job_row(who, job_id)).job
        stored = await self._database.read(lambda at: list_versions(at, job, 1, min(number + 1, NEWEST)))
        if not stored and number == 1:
            stored = await self._database.read(lambda at: list_versions(at, job, 1))
        if not stored or stored[0].version != number:
            raise NotFound(f"The job has no version {number}.")
        return stored[0].job

    async def occurrences(
        self, who: Identity, job_id: UUID, *, count: int, start: datetime | None = None,
        end: datetime | None = None,
    ) -> PreviewPage:
        """Return the next occurrences of a job, also if it is paused."""
        row = await self.job_row(who, job_id)
        effective = await self.calendar_of(row)
        work = partial(
            occurrences_page, row, datetime.now(UTC), effective, count=count, start=start, end=end
        )
        return await self._compute.run(work)

    async def calendar_of(self, row: JobRow) -> EffectiveCalendar | None:
        """Return the calendar that applies to a job; None if it names none."""
        definition = row.job.definition
        name = None if definition is None else definition.spec.calendar
        return None if name is None else await self.calendar(row.job.tenant, name)

    async def calendar(self, tenant: str, name: str) -> EffectiveCalendar | None:
        """Return the calendar that applies to a tenant's jobs; None if there is none with this name."""
        if not re.fullmatch(CALENDAR_NAME_PATTERN, name) or not re.fullmatch(TENANT_PATTERN, tenant):
            return None
        key = TenantCalendar(tenant, name)
        return (await self._database.read(partial(read_effective, key=key))).get(key)

    async def preview(self, who: Identity, body: bytes) -> PreviewPage:
        """Return the occurrences of a schedule. Raises Rejected with the same messages as for a command."""
        check(who, Permission.READ)
        fields, _ = parse_object(body or b"{}", exact="")
        find = await self.preview_calendar(who, fields)
        return await self._compute.run(partial(preview_page, fields, datetime.now(UTC), find))

    async def preview_calendar(self, who: Identity, fields: Mapping[str, Any]) -> FindCalendar:
        """Return the calendar that a preview names; other tenants' are unknown."""
        name, tenant = fields.get("calendar"), fields.get("tenant") or who.tenant or DEFAULT_TENANT
        effective = None
        if isinstance(name, str) and isinstance(tenant, str) and who.tenant in (None, tenant):
            effective = await self.calendar(tenant, name)

        def find(_: str) -> BusinessCalendar:
            if effective is None:
                raise KeyError(name)
            return effective.calendar

        return find

    async def runs(
        self, who: Identity, filters: RunFilter, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[RunView]:
        """Return a page of runs, the latest due first."""
        check(who, Permission.READ)
        return await self._list("runs", who, filters, limit, after, list_runs, run_view, _run_position)

    async def run(self, who: Identity, event_id: UUID) -> WholeRunView:
        """Return one run with its attempts."""
        return whole_run_view(await self.run_row(who, event_id))

    async def run_row(self, who: Identity, event_id: UUID) -> Run:
        """Return one stored run. Raises NotFound, also for another tenant's run."""
        check(who, Permission.READ)
        run = await self._database.read(lambda at: find_run(at, str(event_id)))
        if run is None or run.occurrence is None or who.tenant not in (None, run.occurrence.tenant):
            raise NotFound(f"No run has the event_id {event_id}.")
        return run

    async def job_names(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return the names, or types, of jobs that the caller has read, by id."""
        if not job_ids:
            return {}
        return await self._database.read(lambda at: names_of_jobs(at, job_ids))

    async def run_statuses(self, event_ids: Sequence[str]) -> dict[str, str]:
        """Return the statuses of runs by event id. Checks no permission: the caller must."""
        if not event_ids:
            return {}
        return await self._database.search(lambda at: statuses_of_runs(at, event_ids))

    async def run_names(self, event_ids: Sequence[str]) -> dict[str, str]:
        """Return the names of the jobs of runs that the caller has read, by event id."""
        if not event_ids:
            return {}
        return await self._database.read(lambda at: names_of_runs(at, event_ids))

    async def stats(self, who: Identity) -> StatsView:
        """Return the statistics; concurrent callers share one query."""
        check(who, Permission.READ)
        return await self._stats.get(who.tenant, lambda: self._query_stats(who.tenant))

    async def _query_stats(self, tenant: str | None) -> StatsView:
        return stats_view(await self._database.search(lambda at: stats(at, tenant)))

    async def replicas(self, who: Identity) -> Page[ReplicaView | RoleView]:
        """Return recently seen processes and workers; for a single tenant, only counts and offers."""
        check(who, Permission.READ)
        replicas, workers = await self._database.read(list_processes)
        if who.tenant is not None:
            return Page(role_views(replicas, workers, who.tenant))
        return Page([*map(replica_view, replicas), *map(worker_view, workers)])

    async def job_types(self, who: Identity, limit: int, after: str | None) -> Page[JobTypeView]:
        """Return a page of the job types that workers serve or visible jobs use, by name."""
        check(who, Permission.READ)
        jobs, catalogues = await self._database.search(lambda connection: list_job_types(connection, who.tenant))
        views = [view for view in job_type_views(jobs, catalogues) if after is None or view.job_type > after]
        return Page(views[:limit], views[limit - 1].job_type if len(views) > limit else None)

    async def handler_offer(self, who: Identity, job_type: str) -> HandlerOffer | None:
        """Return the offer of live handlers for a job type; None if there are none."""
        check(who, Permission.READ)
        found = await self._database.read(lambda connection: find_handler(connection, job_type))
        return None if found is None else HandlerOffer.model_validate(found)

    async def audit(
        self, who: Identity, filters: AuditFilter, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[AuditView]:
        """Return a page of the audit, newest first."""
        check(who, Permission.AUDIT)
        return await self._list(
            "audit", who, filters, limit, after, list_audit, audit_view, lambda row: (row.at, row.place)
        )

    async def job_audit(
        self, who: Identity, job_id: UUID, limit: int, until: datetime | None = None
    ) -> Sequence[AuditView]:
        """Return the newest changes of a job; only callers who may change it see them."""
        check(who, Permission.WRITE)
        wanted = AuditFilter(kind="job", thing=str(job_id), until=until)
        page = await self._list(
            "audit", who, wanted, limit, None, list_audit, audit_view, lambda row: (row.at, row.place)
        )
        return page.items

    async def status_changes(self, who: Identity, job: Job, until: datetime) -> list[StatusChange]:
        """Return the newest changes of the status of a job that the caller has read, newest first."""
        check(who, Permission.READ)
        return await self._database.search(lambda at: status_changes(at, job.id, job.tenant, until))

    async def _list(  # noqa: PLR0917 - the parts of one list
        self, kind: str, who: Identity, filters: Filter, limit: int, after: str | None,
        search: Callable[[Connection, Filter, int, Position | None], Sequence[Row]], view: Callable[[Row], Item],
        position: Callable[[Row], Position],
    ) -> Page[Item]:
        """Return a page of the matching rows of tenants that the caller may see."""
        start = cursors.read(kind, after)
        tenant, visible = visible_tenant(who, filters.tenant)
        if not visible:
            return Page([])
        narrowed = replace(filters, tenant=tenant)
        # An extra row, or a cut page, means that there is a next page.
        rows = await self._database.search(lambda at: search(at, narrowed, limit + 1, start))
        more = len(rows) > limit or getattr(rows, "cut", False)
        page = rows[:limit]
        return Page([view(row) for row in page], cursors.write(kind, *position(page[-1])) if more else None)

    async def health(self, who: Identity) -> DetailedHealth:
        """Return the state of the sidecar as seen from this process."""
        check(who, Permission.READ)
        # Each check opens a connection to the broker: all tokens share it for a second.
        return await self._health.get(None, lambda: detailed_health(self._database, self._amqp_urls))


def _run_position(run: Run) -> Position:
    return run.known_occurrence.due_at, run.event_id
