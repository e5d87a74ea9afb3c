"""The combined subscriptions of all open pages, and the database poll for them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from scheduler.postgres.connection import Connection
from scheduler.postgres.console_queries import MAX_NEW, SystemSnapshot, take_snapshot, watched_runs
from scheduler.postgres.jobs.lists import JobRow, watched_jobs
from scheduler.views.jobs import JobView, job_view
from scheduler.views.runs import RunView, WholeRunView, run_view, whole_run_view

Kind: TypeAlias = Literal["run", "run row", "job", "job row", "newest"]
Watch: TypeAlias = tuple[Kind, str]  # with "runs" or "jobs" for the newest, otherwise an id
_OF_RUNS: tuple[Kind, ...] = ("run", "run row", "job")
_OF_JOBS: tuple[Kind, ...] = ("job", "job row")


@dataclass(frozen=True, slots=True)
class RunUpdates:
    """The runs on open pages: whole runs, rows, runs of a job, and the newest runs."""

    whole: Mapping[str, WholeRunView] = field(default_factory=dict)
    rows: Mapping[str, RunView] = field(default_factory=dict)
    of_job: Mapping[str, Sequence[RunView]] = field(default_factory=dict)
    newest: Sequence[RunView] = ()
    poll: int = 0  # number of the poll


@dataclass(frozen=True, slots=True)
class JobUpdates:
    """The jobs on open pages, as rows and as views, and the newest jobs."""

    rows: Mapping[str, JobRow] = field(default_factory=dict)
    views: Mapping[str, JobView] = field(default_factory=dict)
    newest: Sequence[JobView] = ()
    poll: int = 0


@dataclass(frozen=True, slots=True)
class PollRequest:
    """The requested parts of a poll: the system's state, and the watched jobs and runs."""

    pulse: bool
    failures: bool
    watched: Mapping[Kind, frozenset[str]] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether any run is watched."""
        return any(kind in self.watched for kind in _OF_RUNS) or "runs" in self.watched.get("newest", ())

    @property
    def jobs(self) -> bool:
        """Whether any job is watched; jobs are polled with the system's state."""
        anything = any(kind in self.watched for kind in _OF_JOBS) or "jobs" in self.watched.get("newest", ())
        return self.pulse and anything


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of a poll; None for parts that were not requested."""

    pulse: SystemSnapshot | None = None
    runs: RunUpdates | None = None
    jobs: JobUpdates | None = None


class Subscriptions:
    """Counts the open pages for each watched job or run."""

    def __init__(self) -> None:
        self._counts: Counter[Watch] = Counter()

    @contextmanager
    def of(self, watches: Iterable[Watch]) -> Iterator[None]:
        """Include these in the polls while the page is open."""
        own = tuple(watches)
        self._counts.update(own)
        try:
            yield
        finally:
            self._counts.subtract(own)
            for watch in own:
                if not self._counts[watch]:
                    del self._counts[watch]

    def wants(self, *, pulse: bool, failures: bool) -> PollRequest:
        """Return the request for the next poll."""
        watched: dict[Kind, set[str]] = {}
        for kind, key in self._counts:
            watched.setdefault(kind, set()).add(key)
        return PollRequest(pulse, failures, {kind: frozenset(keys) for kind, keys in watched.items()})


def poll_database(connection: Connection, wants: PollRequest) -> PollResult:
    """Poll the requested parts with at most three statements: state, runs and jobs."""
    pulse = take_snapshot(connection, with_failures=wants.failures) if wants.pulse else None
    return PollResult(pulse, _runs(connection, wants) if wants.runs else None,
                _jobs(connection, wants) if wants.jobs else None)


def _runs(connection: Connection, wants: PollRequest) -> RunUpdates:
    watched = wants.watched
    result = watched_runs(
        connection, whole=watched.get("run", ()), rows=watched.get("run row", ()), jobs=watched.get("job", ()),
        newest="runs" in watched.get("newest", ()),
    )
    return RunUpdates(
        {event_id: whole_run_view(run) for event_id, run in result.whole.items()},
        {event_id: run_view(run) for event_id, run in result.rows.items()},
        {job_id: [run_view(run) for run in result.of_job.get(job_id, ())] for job_id in watched.get("job", ())},
        [run_view(run) for run in result.newest],
    )


def _jobs(connection: Connection, wants: PollRequest) -> JobUpdates:
    watched = wants.watched
    newest = MAX_NEW if "jobs" in watched.get("newest", ()) else 0
    ids = watched.get("job", frozenset()) | watched.get("job row", frozenset())
    rows = {row.job.id: row for row in watched_jobs(connection, ids, newest)}
    views = {job_id: job_view(row) for job_id, row in rows.items()}
    return JobUpdates(rows, views, sorted(views.values(), key=lambda job: job.created_at, reverse=True)[:newest])
