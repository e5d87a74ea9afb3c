"""What open pages want looked at, all of them together, and what a look brought."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from scheduler.postgres.connection import Connection
from scheduler.postgres.console_queries import MOST_NEW, SystemSnapshot, take_snapshot, watched_runs
from scheduler.postgres.jobs.lists import JobRow, watched_jobs
from scheduler.views.jobs import JobView, job_view
from scheduler.views.runs import RunView, WholeRunView, run_view, whole_run_view

Kind: TypeAlias = Literal["run", "run row", "job", "job row", "newest"]
Watch: TypeAlias = tuple[Kind, str]  # of the newest: "runs" or "jobs", of all others an id
_OF_RUNS: tuple[Kind, ...] = ("run", "run row", "job")
_OF_JOBS: tuple[Kind, ...] = ("job", "job row")


@dataclass(frozen=True, slots=True)
class RunUpdates:
    """The runs that pages show: whole, as rows, of a job, and the newest of all."""

    whole: Mapping[str, WholeRunView] = field(default_factory=dict)
    rows: Mapping[str, RunView] = field(default_factory=dict)
    of_job: Mapping[str, Sequence[RunView]] = field(default_factory=dict)
    newest: Sequence[RunView] = ()
    look: int = 0  # the number of the look that brought them


@dataclass(frozen=True, slots=True)
class JobUpdates:
    """The jobs that pages show, as they are stored and as people see them, and the newest of all."""

    rows: Mapping[str, JobRow] = field(default_factory=dict)
    views: Mapping[str, JobView] = field(default_factory=dict)
    newest: Sequence[JobView] = ()
    look: int = 0


@dataclass(frozen=True, slots=True)
class PollRequest:
    """What one look should bring: a pulse, and what is watched."""

    pulse: bool
    failures: bool
    watched: Mapping[Kind, frozenset[str]] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether any run is watched."""
        return any(kind in self.watched for kind in _OF_RUNS) or "runs" in self.watched.get("newest", ())

    @property
    def jobs(self) -> bool:
        """Whether any job is watched, and it is time to look at them."""
        anything = any(kind in self.watched for kind in _OF_JOBS) or "jobs" in self.watched.get("newest", ())
        return self.pulse and anything


@dataclass(frozen=True, slots=True)
class PollResult:
    """What a look brought; None is what it did not look for."""

    pulse: SystemSnapshot | None = None
    runs: RunUpdates | None = None
    jobs: JobUpdates | None = None


class Subscriptions:
    """Counts who watches what."""

    def __init__(self) -> None:
        self._counts: Counter[Watch] = Counter()

    @contextmanager
    def of(self, watches: Iterable[Watch]) -> Iterator[None]:
        """Have these looked at for as long as somebody sees them."""
        mine = tuple(watches)
        self._counts.update(mine)
        try:
            yield
        finally:
            self._counts.subtract(mine)
            for each in mine:
                if not self._counts[each]:
                    del self._counts[each]

    def wants(self, *, pulse: bool, failures: bool) -> PollRequest:
        """Return what the next look should bring."""
        watched: dict[Kind, set[str]] = {}
        for kind, key in self._counts:
            watched.setdefault(kind, set()).add(key)
        return PollRequest(pulse, failures, {kind: frozenset(keys) for kind, keys in watched.items()})


def poll_database(connection: Connection, wants: PollRequest) -> PollResult:
    """Look at everything that is wanted: a statement for the pulse, one for the runs, one for the jobs."""
    pulse = take_snapshot(connection, with_failures=wants.failures) if wants.pulse else None
    return PollResult(pulse, _runs(connection, wants) if wants.runs else None,
                _jobs(connection, wants) if wants.jobs else None)


def _runs(connection: Connection, wants: PollRequest) -> RunUpdates:
    watched = wants.watched
    found = watched_runs(
        connection, whole=watched.get("run", ()), rows=watched.get("run row", ()), jobs=watched.get("job", ()),
        newest="runs" in watched.get("newest", ()),
    )
    return RunUpdates(
        {event_id: whole_run_view(run) for event_id, run in found.whole.items()},
        {event_id: run_view(run) for event_id, run in found.rows.items()},
        {job_id: [run_view(run) for run in found.of_job.get(job_id, ())] for job_id in watched.get("job", ())},
        [run_view(run) for run in found.newest],
    )


def _jobs(connection: Connection, wants: PollRequest) -> JobUpdates:
    watched = wants.watched
    newest = MOST_NEW if "jobs" in watched.get("newest", ()) else 0
    ids = watched.get("job", frozenset()) | watched.get("job row", frozenset())
    rows = {row.job.id: row for row in watched_jobs(connection, ids, newest)}
    views = {job_id: job_view(row) for job_id, row in rows.items()}
    return JobUpdates(rows, views, sorted(views.values(), key=lambda job: job.created_at, reverse=True)[:newest])
