"""The source of due runs: emits the next attempt, ends expired attempts, and announces the end of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.domain.runs.run import IDLE_SECONDS, Run, RunStatus, replace
from scheduler.domain.runs.transitions import deliver_run, expire_attempt
from scheduler.domain.runs.unannounced_ends import run_at_end
from scheduler.domain.targets.offers import is_unoffered, no_worker
from scheduler.emitting.results_probe import ResultsProbe
from scheduler.emitting.run_messages import count_unoffered, dead_message, finished_message, run_message
from scheduler.emitting.source import BatchTimes, EmissionResult, EmissionTime, Source
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.ops.trace_types import Traced
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.priority_classes import CLASSES
from scheduler.postgres.runs import due
from scheduler.postgres.runs.due import RunSettlement
from scheduler.postgres.runs.lists import set_trigger_callers
from scheduler.postgres.runs.store import KIND
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.publisher import Receipt

log = get_logger(__name__)

MAX_LOGGED_IDS = 10
# No heartbeat could be stored while the database was unavailable: queued heartbeats must be read first.
OUTAGE_GRACE = timedelta(seconds=10)
_refused = ThrottledWarning(log, "messages of runs not delivered")
_dead = ThrottledWarning(log, "run is dead")


@dataclass(slots=True)
class RunEmission:
    """A run before and after the decision."""

    before: Run
    after: Run
    marker: Publishable | None = None  # sent instead of a decision


class DueRuns(Source[Run, RunEmission]):
    """The source of later attempts, dead letters and ScheduleFinished."""

    kind = KIND
    tables = ("runs", "run_history", "jobs")
    classes = CLASSES
    notice_seconds: float | None = None
    idle_seconds = IDLE_SECONDS

    def __init__(
        self, *, after_outage: bool = False, probe: ResultsProbe | None = None, replica: str | None = None
    ) -> None:
        """Create the source; after an outage of the database no attempt is `lost` for a grace period.

        With a `probe` no attempt is ended before all queued results were read.
        """
        self._after_outage = after_outage
        self._probe = probe
        self._replica = replica
        self._grace_until: datetime | None = None
        self._offered: frozenset[str] = frozenset()  # by live workers, at the last claim of an unstarted attempt

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[Run]:
        """Lock the due runs."""
        if self._probe is not None:
            self._probe.before_claim(session)
        claim = due.claim(session, limit, since)
        if self._probe is not None:
            self._probe.after_claim(session, claim.things, claim.claimed_at)
        set_trigger_callers(session.query, claim.things)  # for ScheduleFinished
        if self._after_outage and self._grace_until is None:
            self._grace_until = claim.claimed_at + OUTAGE_GRACE
        if any(run.status is RunStatus.DELIVERED and run.known_occurrence.work for run in claim.things):
            self._offered = due.live_offers(session)
        return claim

    def name(self, run: Run) -> str:
        """Return the run's event_id."""
        return run.event_id

    def decide(self, run: Run, now: datetime) -> RunEmission:
        """Decide the next state of a due run."""
        if run.unannounced and run.open:
            # Separately from the next attempt: if the broker refuses that, the ends are not announced again.
            return RunEmission(run, replace(run, unannounced=None))
        if run.status is RunStatus.WAITING:
            return RunEmission(run, deliver_run(run, run.event_id, run.known_occurrence, now, self._replica))
        after = run if self._in_outage_grace(run, now) else expire_attempt(run, now, self._problem(run))
        if after is not run and self._probe is not None and not self._probe.covers(run):
            return RunEmission(run, run, self._probe.marker(run, now))
        return RunEmission(run, after)

    def _problem(self, run: Run) -> str | None:
        """Return why no worker can start an attempt, if that is so."""
        work = None if run.occurrence is None else run.occurrence.work
        return no_worker(work) if work is not None and is_unoffered(work, self._offered) else None

    def _in_outage_grace(self, run: Run, now: datetime) -> bool:
        """Return whether it is too soon after an outage to treat its worker as lost; its deadline still holds."""
        if self._grace_until is None or now >= self._grace_until or run.status is not RunStatus.RUNNING:
            return False
        return run.deadline is None or now < run.deadline

    def messages(self, emission: RunEmission, stamp: EmissionTime) -> Sequence[Publishable]:  # noqa: ARG002 - the run has the time
        """Return the event of the next attempt, or the messages that announce the end."""
        run = emission.after
        if emission.marker is not None:
            return [emission.marker]
        ended_before = [run_at_end(run, end) for end in emission.before.unannounced or ()]
        if ended_before and run.open:
            return [message for ended in ended_before for message in _announcement(ended)]
        if run.status is RunStatus.DELIVERED and run is not emission.before:
            return [run_message(run)]
        if run.open or run.occurrence is None:
            return []
        return [message for ended in (*ended_before, run) for message in _announcement(ended)]

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[RunEmission]], unreadable: Sequence[Run],
        times: BatchTimes,
    ) -> datetime | None:
        """Settle each run by its receipts; a run with an unconfirmed message stays due."""
        settlement = RunSettlement(postponed=[run.event_id for run in unreadable])
        due_times: list[datetime] = []
        for emission, _, refusal in results:
            run = emission.after
            _release(settlement, emission, refusal)
            if refusal is not None:
                if _has_no_queue(emission, refusal, times):
                    settlement.changed.append(replace(run, deadline=times.claimed_at))  # the next claim ends it
                elif refusal is not Receipt.UNKNOWN:
                    settlement.postponed.append(run.event_id)
                continue
            _add(settlement, emission)
            if run.open and run.wake_at is not None and run is not emission.before:
                due_times.append(run.wake_at)
        due.settle(session, settlement)
        soonest = min(due_times, default=None)
        return LONG_AGO if soonest is not None and soonest <= times.claimed_at else soonest

    def report(self, results: Sequence[EmissionResult[RunEmission]], times: BatchTimes) -> None:  # noqa: ARG002 - part of the interface
        """Count ended attempts and runs, and log refused messages."""
        refused: dict[Receipt, list[str]] = {}
        for emission, _, refusal in results:
            if refusal is not None:
                refused.setdefault(refusal, []).append(emission.after.event_id)
                if emission.marker is None and emission.after.occurrence is not None:
                    count_unoffered(refusal, emission.after.occurrence.work or "")
            else:
                _count(emission)
        for receipt, ids in refused.items():
            _refused.warning(
                count=len(ids), reason=receipt.value, event_ids=ids[:MAX_LOGGED_IDS],
                do="bind a queue to schedule.events for due, and scheduler_dead to schedule.dead",
            )

    def traced(self, results: Sequence[EmissionResult[RunEmission]]) -> list[Traced]:
        """Return the later attempts whose request belongs to a trace."""
        traced = []
        for emission, receipts, _ in results:
            run, occurrence = emission.after, emission.after.occurrence
            sent = run.status is RunStatus.DELIVERED and run.attempt > emission.before.attempt
            if sent and occurrence is not None and occurrence.traceparent is not None:
                attributes = {"job_id": occurrence.job_id, "event_id": run.event_id, "attempt": run.attempt}
                failed = receipts[0].value if receipts and receipts[0] is not Receipt.CONFIRMED else None
                traced.append(Traced(occurrence.traceparent, occurrence.tracestate, attributes, failed))
        return traced


def _has_no_queue(emission: RunEmission, refusal: Receipt, times: BatchTimes) -> bool:
    """Return whether the event of an attempt has been returned for its whole start_timeout."""
    run = emission.after
    if refusal is not Receipt.RETURNED or run.status is not RunStatus.DELIVERED or run is emission.before:
        return False
    occurrence, retry_at = run.known_occurrence, emission.before.retry_at
    if occurrence.work is None or retry_at is None:
        return False
    return (times.claimed_at - retry_at).total_seconds() >= occurrence.policy.start_timeout


def _announcement(run: Run) -> list[Publishable]:
    """Return the messages that announce the end of a run."""
    finished = finished_message(run)
    return [dead_message(run), finished] if run.status is RunStatus.DEAD else [finished]


def _add(settlement: RunSettlement, emission: RunEmission) -> None:
    run = emission.after
    if run is not emission.before:
        settlement.changed.append(run)
    elif run.expires_at is not None:
        settlement.postponed.append(run.event_id)
    if run.status is RunStatus.EXPECTED:
        settlement.forgotten.append(run.event_id)
    elif not run.open:
        settlement.ended.append(run.event_id)


def _release(settlement: RunSettlement, emission: RunEmission, refusal: Receipt | None) -> None:
    """Release the job of a run that has ended, regardless of the run's policy: the job's may have changed.

    If a consumer has stored the end of a run, the job is released even if the broker refuses the announcement.
    """
    run = emission.after if refusal is None else emission.before
    if not run.open:
        settlement.released.append(run.known_occurrence.job_id)


def _count(emission: RunEmission) -> None:
    before, run = emission.before, emission.after
    for end in before.unannounced or ():
        metrics.runs.labels(end.status.value).inc()
    if before.status in (RunStatus.DELIVERED, RunStatus.RUNNING) and run.status is not before.status:
        metrics.run_attempts.labels(run.attempts[-1].outcome.value).inc()
    if run.status is RunStatus.EXPECTED:
        metrics.results_unknown.inc(len(run.early))
    elif not run.open:
        metrics.runs.labels(run.status.value).inc()
        if run.duration is not None:
            metrics.run_seconds.observe(run.duration.total_seconds())
        if run.status is RunStatus.DEAD:
            _dead.warning(
                event_id=run.event_id, job_id=run.known_occurrence.job_id, attempts=run.attempt, error=run.error,
                do="check the message in scheduler_dead; `scheduler run retry` resets its attempts",
            )
