"""The live pages: the jobs and runs that each watches, and its messages with changed parts and rows."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.api.console import overview_data
from scheduler.api.console.activity_history import SAMPLE_SECONDS
from scheduler.api.console.broadcaster import LiveSnapshot
from scheduler.api.console.job_summary import PARTS, job_context
from scheduler.api.console.new_rows import Position, new_jobs, new_runs
from scheduler.api.console.run_summary import run_context
from scheduler.api.console.site import Site, dead_letter_count_for, may, permissions_of
from scheduler.api.console.subscriptions import Watch
from scheduler.api.identity import Identity, Permission
from scheduler.domain.calendars import EffectiveCalendar
from scheduler.postgres.console_queries import MAX_NEW
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView
from scheduler.views.overview import StatsView
from scheduler.views.runs import RunView

_TENANT_OVERVIEW: tuple[str, ...] = ("status", "tiles", "failing", "upcoming")
_OVERVIEW = (*_TENANT_OVERVIEW, "roles")
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageViewer:
    """The visitor of a live page; renders only parts that the visitor may see."""

    site: Site
    who: Identity
    csrf: str
    after: int  # the last poll before the page was opened: its result may be older than the page

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """Render a part of the page."""
        rights = permissions_of(self.who) | {"who": self.who, "csrf": self.csrf}
        return self.site.fragment(name, dict(context) | rights)

    def sees(self, tenant: str) -> bool:
        """Return whether the visitor may see a tenant's data."""
        return self.who.tenant in (None, tenant)


class Topic(Protocol):
    """A live page."""

    @property
    def watches(self) -> Collection[Watch]:
        """The jobs and runs to poll."""

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the changes since the last message."""


@dataclass(slots=True)
class OverviewTopic:
    """The overview: its parts, and samples for its charts."""

    watches: tuple[Watch, ...] = ()
    _sent: dict[str, str] = field(default_factory=dict)
    _stats: StatsView | None = None
    _stats_due: float = 0.0

    async def refresh(self, viewer: PageViewer) -> None:
        """Query a tenant's own figures, only as often as samples are taken: they are more expensive."""
        if viewer.who.tenant is not None and time.monotonic() >= self._stats_due:
            self._stats = await viewer.site.stats(viewer.who)
            self._stats_due = time.monotonic() + SAMPLE_SECONDS

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the parts that have changed, and the sample if one was taken."""
        history = viewer.site.broadcaster.history
        # Visitors with the same tenant and permissions share the rendered parts.
        rights = tuple(may(viewer.who, permission) for permission in (Permission.WRITE, Permission.DEAD_LETTERS))
        key = ("overview", viewer.who.tenant, rights)
        rendered = viewer.site.render_once(snapshot.number, key, lambda: _overview(snapshot, viewer, self._stats))
        message = _changed(self._sent, rendered)
        if snapshot.sampled is not None and viewer.who.all_tenants:
            return message | {"sample": snapshot.sampled.point(), "period": history.period()}
        return message


def _overview(snapshot: LiveSnapshot, viewer: PageViewer, stats: StatsView | None) -> dict[str, str]:
    if viewer.who.tenant is None:
        names, context = _OVERVIEW, overview_data.overview(snapshot, viewer.site.broadcaster.history)
    else:
        names, context = _TENANT_OVERVIEW, overview_data.tenant_overview(snapshot, stats, viewer.who.tenant)
    context |= {"letters": dead_letter_count_for(viewer.site, viewer.who)}
    return {name: viewer.render(name, context) for name in names}


@dataclass(slots=True)
class ProcessesTopic:
    """The processes page."""

    watches: tuple[Watch, ...] = ()
    _sent: dict[str, str] = field(default_factory=dict)

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the changed tables."""
        rendered = viewer.site.render_once(snapshot.number, ("processes",), lambda: {
            "processes": viewer.render("processes", overview_data.processes(snapshot))})
        return _changed(self._sent, rendered)


@dataclass(slots=True)
class RunTopic:
    """One run."""

    event_id: str
    job: JobView | None  # None if it was pruned
    _sent: dict[str, str] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The run, and its job."""
        run: Watch = ("run", self.event_id)
        return (run,) if self.job is None else (run, ("job row", str(self.job.id)))

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the run if it has changed."""
        run = snapshot.runs.whole.get(self.event_id)
        if run is None or snapshot.pulse is None or snapshot.runs.poll <= viewer.after:
            return {}
        if not viewer.sees(run.tenant):
            return {}
        if snapshot.jobs.poll > viewer.after:
            self.job = snapshot.jobs.views.get(str(run.job_id), self.job)
        context = run_context(run, self.job, snapshot.pulse.at)
        return _changed(self._sent, {"run": viewer.render("run", context)})


@dataclass(slots=True)
class JobTopic:
    """One job: its status, next occurrences and last runs."""

    job_id: str
    calendar: EffectiveCalendar | None = None  # as it was when the page was opened
    _shown: Any = None
    _sent: dict[str, str] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The job and its newest runs."""
        return (("job", self.job_id),)

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the parts of the page that have changed."""
        row, runs = snapshot.jobs.rows.get(self.job_id), snapshot.runs.of_job.get(self.job_id)
        polled = min(snapshot.jobs.poll, snapshot.runs.poll) > viewer.after
        if row is None or runs is None or snapshot.pulse is None or not polled or not viewer.sees(row.job.tenant):
            return {}
        current = (snapshot.jobs.views[self.job_id], list(runs))
        if current == self._shown:
            return {}
        self._shown = current
        context = job_context(row, runs, snapshot.pulse.at, self.calendar)
        return _changed(self._sent, {f"job-{name}": viewer.render(f"job_{name}", context) for name in PARTS})


@dataclass(slots=True)
class JobsTopic:
    """A list of jobs: its rows, and how many are new."""

    filters: JobFilter
    ids: frozenset[str]
    last: Position | None
    newest: bool
    _rendered: dict[str, JobView] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """All rows, and the newest jobs if the page shows the newest."""
        rows: tuple[Watch, ...] = tuple(("job row", row_id) for row_id in self.ids)
        return (*rows, ("newest", "jobs")) if self.newest else rows

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the rows that have changed, and the number of new jobs."""
        if snapshot.jobs.poll <= viewer.after:
            return {}
        rows = {}
        for key in self.ids & snapshot.jobs.views.keys():
            job = snapshot.jobs.views[key]
            if viewer.sees(job.tenant) and self._rendered.get(key) != job:
                self._rendered[key] = job
                rows[f"job-{key}"] = viewer.render("job_row", {"job": job})
        message: Message = {"rows": rows}
        if not self.newest:
            return message
        visible = [job for job in snapshot.jobs.newest if viewer.sees(job.tenant)]
        return message | _new_count(new_jobs(visible, self.filters, self.ids, self.last))


@dataclass(slots=True)
class RunsTopic:
    """A list of runs: its rows, and how many are new."""

    filters: RunFilter
    ids: frozenset[str]
    last: Position | None
    newest: bool
    names: Mapping[str, str]  # of the jobs, by event id
    _rendered: dict[str, RunView] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """All rows, and the newest runs if the page shows the newest."""
        rows: tuple[Watch, ...] = tuple(("run row", row_id) for row_id in self.ids)
        return (*rows, ("newest", "runs")) if self.newest else rows

    def message(self, snapshot: LiveSnapshot, viewer: PageViewer) -> Message:
        """Return the rows that have changed, and the number of new runs."""
        if snapshot.runs.poll <= viewer.after:
            return {}
        rows = {}
        for key in self.ids & snapshot.runs.rows.keys():
            run = snapshot.runs.rows[key]
            if viewer.sees(run.tenant) and self._rendered.get(key) != run:
                self._rendered[key] = run
                rows[f"run-{key}"] = viewer.render("run_row", {"run": run, "show_job": True, "names": self.names})
        message: Message = {"rows": rows}
        if not self.newest:
            return message
        visible = [run for run in snapshot.runs.newest if viewer.sees(run.tenant)]
        return message | _new_count(new_runs(visible, self.filters, self.ids, self.last))


def _new_count(number: int) -> Message:
    return {"news": f"{number:,}{'+' if number >= MAX_NEW else ''} new" if number else ""}


def _changed(sent: dict[str, str], parts: Mapping[str, str]) -> Message:
    changed = {name: text for name, text in parts.items() if sent.get(name) != text}
    sent.update(changed)
    return {"parts": changed}
