"""The runs of tracked jobs in a sidecar for tests: what the producer and the consumer of the real one keep."""

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
    """A message as a host would receive it."""

    routing_key: str
    body: bytes
    correlation_id: str | None = None
    priority: int | None = None  # the AMQP property


class SidecarRuns:
    """Every run by its event_id; one that has ended stays, and can be retried."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._untold: set[str] = set()  # have ended, and the ScheduleFinished is not out

    def get(self, event_id: str) -> Run | None:
        """Return where a run stands."""
        return self._runs.get(event_id)

    def open_of(self, job_id: str) -> str | None:
        """Return an open run of a job, if it has one: the oldest."""
        found = [
            (run.occurrence.due_at, run.event_id) for run in self._runs.values()
            if run.open and run.occurrence is not None and run.occurrence.job_id == job_id
        ]
        return min(found)[1] if found else None

    def begin(self, emission: Emission, now: datetime) -> HostEvent:
        """Record the run of an occurrence and return its first event."""
        assert emission.event_id is not None  # noqa: S101 - the caller asked whether there is one
        about = occurrence(emission)
        first = deliver_run(None, emission.event_id, about, now)
        known = self._runs.get(emission.event_id)
        if known is not None and known.status is RunStatus.EXPECTED:
            self._put(deliver_run(known, emission.event_id, about, now))
        elif known is None or not (known.open or known.event_id in self._untold):
            self._put(first)
        return _due(first, about)

    def report(self, result: Result, now: datetime) -> MessageOutcome:
        """Take a result and return what to answer."""
        return self._judged(result.event_id, lambda runs: decide_result(runs, result, now))

    def retry(self, incoming: Incoming, now: datetime) -> MessageOutcome:
        """Take a ScheduleRetry and return what became of it."""
        return self._judged(incoming.about, lambda runs: decide_retry(runs, incoming, now))

    def _judged(self, event_id: str, judge: Callable[[dict[str, Run]], MessageOutcome]) -> MessageOutcome:
        known = self._runs.get(event_id)
        after = {} if known is None else {event_id: known}
        verdict = judge(after)
        if known is not None and event_id in self._untold:
            keep_unannounced_ends({event_id: known}, after)
        for run in after.values():
            self._put(run)
        return verdict

    def cancel(self, job_id: str, now: datetime) -> bool:
        """Make no further attempt at the open runs of a job that was cancelled; return whether it had any."""
        opened = [run for run in self._runs.values()
                  if run.open and run.occurrence is not None and run.occurrence.job_id == job_id]
        for run in opened:
            self._put(cancel_run(run, now))
        return bool(opened)

    def waking(self) -> Iterator[tuple[datetime, Run]]:
        """Go through the runs that a producer will look at, and when."""
        for run in self._runs.values():
            if (run.open or run.event_id in self._untold) and run.wake_at is not None:
                yield run.wake_at, run

    def wake(self, run: Run, now: datetime) -> list[HostEvent]:
        """Do what is to be done about a run now that its time has come, and return what to tell."""
        if run.status is RunStatus.EXPECTED:
            del self._runs[run.event_id]
            return []
        about = run.occurrence
        assert about is not None  # noqa: S101 - whatever else wakes is known
        if run.unannounced:
            self._runs[run.event_id] = replace(run, unannounced=None)
            return [event for end in run.unannounced for event in _announcement(run_at_end(run, end), about)]
        again = run.status is RunStatus.WAITING
        after = deliver_run(run, run.event_id, about, now) if again else expire_attempt(run, now)
        self._put(after)
        if again:
            return [_due(after, about)]
        if after.open:
            return []
        self._untold.discard(run.event_id)
        return _announcement(after, about)

    def _put(self, run: Run) -> None:
        before = self._runs.get(run.event_id)
        self._runs[run.event_id] = run
        if run.open:
            self._untold.discard(run.event_id)
        elif run is not before:
            self._untold.add(run.event_id)


def _announcement(run: Run, about: Occurrence) -> list[HostEvent]:
    told = [HostEvent("finished", finished_body(run), about.correlation_id)]
    return [_event("dead", run, about), *told] if run.status is RunStatus.DEAD else told


def _due(run: Run, about: Occurrence) -> HostEvent:
    _, routing_key = due_address(about.route, about.work)
    return _event(routing_key, run, about)


def _event(routing_key: str, run: Run, about: Occurrence) -> HostEvent:
    return HostEvent(routing_key, due_body(run), about.correlation_id, AMQP_PRIORITIES[about.priority])
