"""What each live page watches, and what it is told of a moment: the parts and rows that have changed."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.api.console import overview_data as shown
from scheduler.api.console.activity_history import SAMPLE_SECONDS
from scheduler.api.console.broadcaster import LiveSnapshot
from scheduler.api.console.job_summary import PARTS, job_context
from scheduler.api.console.new_rows import Place, new_jobs, new_runs
from scheduler.api.console.run_summary import run_context
from scheduler.api.console.site import Site, dead_letter_count_for, may, permissions_of
from scheduler.api.console.subscriptions import Watch
from scheduler.api.identity import Identity, Permission
from scheduler.postgres.console_queries import MOST_NEW
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView
from scheduler.views.overview import StatsView
from scheduler.views.runs import RunView

_TENANT_OVERVIEW: tuple[str, ...] = ("verdict", "tiles", "failing", "upcoming")
_OVERVIEW = (*_TENANT_OVERVIEW, "roles")
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageViewer:
    """Who has the page open: draws what that one may see."""

    the: Site
    who: Identity
    csrf: str
    after: int  # the last look that had begun when the page was opened: what it brought may be older than the page

    def draw(self, name: str, context: Mapping[str, Any]) -> str:
        """Return a part of a page."""
        rights = permissions_of(self.who) | {"who": self.who, "csrf": self.csrf}
        return self.the.fragment(name, dict(context) | rights)

    def sees(self, tenant: str) -> bool:
        """Tell whether a tenant's things are this one's to see."""
        return self.who.tenant in (None, tenant)


class Topic(Protocol):
    """A live page."""

    @property
    def watches(self) -> Collection[Watch]:
        """What must be looked at for it."""

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return what has changed on it."""


@dataclass(slots=True)
class OverviewTopic:
    """The overview: its parts, and samples for its charts."""

    watches: tuple[Watch, ...] = ()
    _sent: dict[str, str] = field(default_factory=dict)
    _stats: StatsView | None = None
    _stats_due: float = 0.0

    async def refresh(self, reader: PageViewer) -> None:
        """Look at a tenant's own figures, as seldom as samples of the whole are taken; they cost more to count."""
        if reader.who.tenant is not None and time.monotonic() >= self._stats_due:
            self._stats = await reader.the.stats(reader.who)
            self._stats_due = time.monotonic() + SAMPLE_SECONDS

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return the parts that have changed, and the sample if one was taken."""
        history = reader.the.broadcaster.history
        # All who see the same tenants see the same parts: they are drawn once for all of them.
        key = ("overview", reader.who.tenant, may(reader.who, Permission.DEAD_LETTERS))
        drawn = reader.the.drawn_once(moment.number, key, lambda: _overview(moment, reader, self._stats))
        found = _changed(self._sent, drawn)
        if moment.sampled is not None and reader.who.all_tenants:
            return found | {"sample": moment.sampled.point(), "reach": history.reach()}
        return found


def _overview(moment: LiveSnapshot, reader: PageViewer, stats: StatsView | None) -> dict[str, str]:
    if reader.who.tenant is None:
        names, context = _OVERVIEW, shown.overview(moment, reader.the.broadcaster.history)
    else:
        names, context = _TENANT_OVERVIEW, shown.tenant_overview(moment, stats, reader.who.tenant)
    context |= {"letters": dead_letter_count_for(reader.the, reader.who)}
    return {name: reader.draw(name, context) for name in names}


@dataclass(slots=True)
class ProcessesTopic:
    """The page of processes."""

    watches: tuple[Watch, ...] = ()
    _sent: dict[str, str] = field(default_factory=dict)

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return the tables where they have changed."""
        drawn = reader.the.drawn_once(moment.number, ("processes",), lambda: {
            "processes": reader.draw("processes", shown.processes(moment))})
        return _changed(self._sent, drawn)


@dataclass(slots=True)
class RunTopic:
    """One run."""

    event_id: str
    job: JobView | None  # None where it was pruned
    _sent: dict[str, str] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The run, and its job."""
        run: Watch = ("run", self.event_id)
        return (run,) if self.job is None else (run, ("job row", str(self.job.id)))

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return the run where it has changed."""
        run = moment.runs.whole.get(self.event_id)
        if run is None or moment.pulse is None or moment.runs.look <= reader.after or not reader.sees(run.tenant):
            return {}
        if moment.jobs.look > reader.after:
            self.job = moment.jobs.views.get(str(run.job_id), self.job)
        context = run_context(run, self.job, moment.pulse.at)
        return _changed(self._sent, {"run": reader.draw("run", context)})


@dataclass(slots=True)
class JobTopic:
    """One job: where it stands, when it runs next, how its last runs fared."""

    job_id: str
    _known: Any = None
    _sent: dict[str, str] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The job and its newest runs."""
        return (("job", self.job_id),)

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return the parts of the page that have changed."""
        row, runs = moment.jobs.rows.get(self.job_id), moment.runs.of_job.get(self.job_id)
        looked = min(moment.jobs.look, moment.runs.look) > reader.after
        if row is None or runs is None or moment.pulse is None or not looked or not reader.sees(row.job.tenant):
            return {}
        known = (moment.jobs.views[self.job_id], list(runs))
        if known == self._known:
            return {}
        self._known = known
        context = job_context(row, runs, moment.pulse.at)
        return _changed(self._sent, {f"job-{name}": reader.draw(f"job_{name}", context) for name in PARTS})


@dataclass(slots=True)
class JobsTopic:
    """A list of jobs: its rows, and how many are new."""

    wanted: JobFilter
    shown: frozenset[str]
    last: Place | None
    newest: bool
    _known: dict[str, JobView] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """Every row, and the newest jobs of all where the page shows the newest."""
        rows: tuple[Watch, ...] = tuple(("job row", each) for each in self.shown)
        return (*rows, ("newest", "jobs")) if self.newest else rows

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return the rows that have changed, and the number of new jobs."""
        if moment.jobs.look <= reader.after:
            return {}
        rows = {}
        for key in self.shown & moment.jobs.views.keys():
            job = moment.jobs.views[key]
            if reader.sees(job.tenant) and self._known.get(key) != job:
                self._known[key] = job
                rows[f"job-{key}"] = reader.draw("job_row", {"job": job})
        message: Message = {"rows": rows}
        if not self.newest:
            return message
        seen = [job for job in moment.jobs.newest if reader.sees(job.tenant)]
        return message | _news(new_jobs(seen, self.wanted, self.shown, self.last))


@dataclass(slots=True)
class RunsTopic:
    """A list of runs: its rows, and how many are new."""

    wanted: RunFilter
    shown: frozenset[str]
    last: Place | None
    newest: bool
    _known: dict[str, RunView] = field(default_factory=dict)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """Every row, and the newest runs of all where the page shows the newest."""
        rows: tuple[Watch, ...] = tuple(("run row", each) for each in self.shown)
        return (*rows, ("newest", "runs")) if self.newest else rows

    def message(self, moment: LiveSnapshot, reader: PageViewer) -> Message:
        """Return the rows that have changed, and the number of new runs."""
        if moment.runs.look <= reader.after:
            return {}
        rows = {}
        for key in self.shown & moment.runs.rows.keys():
            run = moment.runs.rows[key]
            if reader.sees(run.tenant) and self._known.get(key) != run:
                self._known[key] = run
                rows[f"run-{key}"] = reader.draw("run_row", {"run": run, "show_job": True})
        message: Message = {"rows": rows}
        if not self.newest:
            return message
        seen = [run for run in moment.runs.newest if reader.sees(run.tenant)]
        return message | _news(new_runs(seen, self.wanted, self.shown, self.last))


def _news(number: int) -> Message:
    return {"news": f"{number:,}{'+' if number >= MOST_NEW else ''} new" if number else ""}


def _changed(sent: dict[str, str], parts: Mapping[str, str]) -> Message:
    changed = {name: text for name, text in parts.items() if sent.get(name) != text}
    sent.update(changed)
    return {"parts": changed}
