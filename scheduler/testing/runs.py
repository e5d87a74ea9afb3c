"""Runs of tracked jobs in the in-process sidecar."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from scheduler.commands.decide_commands import MessageOutcome, decide_result, decide_retry
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.emission import Emission, occurrence
from scheduler.domain.messages import AMQP_PRIORITIES
from scheduler.domain.names import due_address
from scheduler.domain.runs.event import due_body, finished_body
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import Occurrence, Run, RunStatus, replace
from scheduler.domain.runs.transitions import cancel_run, deliver_run, expire_attempt
from scheduler.domain.runs.unannounced_ends import keep_unannounced_ends, run_at_end


@dataclass(frozen=True, slots=True)
class HostEvent:
    """A message for a host."""

    routing_key: str
    body: bytes
    correlation_id: str | None = None
    priority: int | None = None  # the AMQP property


class SidecarRuns:
    """Runs by event_id; finished runs stay, and can be retried."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._unannounced: set[str] = set()  # finished, and ScheduleFinished is not published

    def get(self, event_id: str) -> Run | None:
        """Return a run."""
        return self._runs.get(event_id)

    def open_of(self, job_id: str, limit: int) -> str | None:
        """Return an open run of a job that has at least `limit` open runs."""
        open_runs = [
            run.event_id for run in self._runs.values()
            if run.open and run.occurrence is not None and run.occurrence.job_id == job_id
        ]
        return open_runs[limit - 1] if len(open_runs) >= limit else None

    def begin(self, emission: Emission, now: datetime) -> HostEvent:
        """Record the run of an occurrence and return its first event."""
        assert emission.event_id is not None  # noqa: S101 - the caller checked it
        about = occurrence(emission)
        first = deliver_run(None, emission.event_id, about, now)
        stored = self._runs.get(emission.event_id)
        if stored is not None and stored.status is RunStatus.EXPECTED:
            self._put(deliver_run(stored, emission.event_id, about, now))
        elif stored is None or not (stored.open or stored.event_id in self._unannounced):
            self._put(first)
        return _due(first, about)

    def report(self, result: Result, now: datetime) -> MessageOutcome:
        """Apply a result and return its outcome."""
        return self._decide(result.event_id, lambda runs: decide_result(runs, result, now))

    def retry(self, incoming: Incoming, now: datetime) -> MessageOutcome:
        """Apply a ScheduleRetry and return its outcome."""
        return self._decide(incoming.about, lambda runs: decide_retry(runs, incoming, now))

    def _decide(self, event_id: str, decide: Callable[[dict[str, Run]], MessageOutcome]) -> MessageOutcome:
        before = self._runs.get(event_id)
        after = {} if before is None else {event_id: before}
        outcome = decide(after)
        if before is not None and event_id in self._unannounced:
            keep_unannounced_ends({event_id: before}, after)
        for run in after.values():
            self._put(run)
        return outcome

    def cancel(self, job_id: str, now: datetime) -> bool:
        """Cancel the open runs of a job; return whether it had any."""
        opened = [run for run in self._runs.values()
                  if run.open and run.occurrence is not None and run.occurrence.job_id == job_id]
        for run in opened:
            self._put(cancel_run(run, now))
        return bool(opened)

    def next_wakeups(self) -> Iterator[tuple[datetime, Run]]:
        """Yield the runs with a wakeup, and its time."""
        for run in self._runs.values():
            if (run.open or run.event_id in self._unannounced) and run.wake_at is not None:
                yield run.wake_at, run

    def wake(self, run: Run, now: datetime) -> list[HostEvent]:
        """Advance a run whose wakeup is due; return the messages for the host."""
        if run.status is RunStatus.EXPECTED:
            del self._runs[run.event_id]
            return []
        about = run.known_occurrence
        if run.unannounced:
            self._runs[run.event_id] = replace(run, unannounced=None)
            return [event for end in run.unannounced for event in _announcement(run_at_end(run, end), about)]
        retry = run.status is RunStatus.WAITING
        after = deliver_run(run, run.event_id, about, now) if retry else expire_attempt(run, now)
        self._put(after)
        if retry:
            return [_due(after, about)]
        if after.open:
            return []
        self._unannounced.discard(run.event_id)
        return _announcement(after, about)

    def _put(self, run: Run) -> None:
        before = self._runs.get(run.event_id)
        self._runs[run.event_id] = run
        if run.open:
            self._unannounced.discard(run.event_id)
        elif run is not before:
            self._unannounced.add(run.event_id)


def _announcement(run: Run, about: Occurrence) -> list[HostEvent]:
    finished = HostEvent("finished", finished_body(run), about.correlation_id)
    return [_event("dead", run, about), finished] if run.status is RunStatus.DEAD else [finished]


def _due(run: Run, about: Occurrence) -> HostEvent:
    _, routing_key = due_address(about.route, about.work)
    return _event(routing_key, run, about)


def _event(routing_key: str, run: Run, about: Occurrence) -> HostEvent:
    return HostEvent(routing_key, due_body(run), about.correlation_id, AMQP_PRIORITIES[about.priority])
