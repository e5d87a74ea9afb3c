"""The source of occurrences that a calendar skips: each is reported by a ScheduleMissed at its nominal instant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.domain.jobs.adjusted import SkipReport, planner_of, report_skips
from scheduler.domain.jobs.emission import Missed
from scheduler.domain.jobs.job import Job
from scheduler.emitting.source import BatchTimes, EmissionResult, EmissionTime, Source
from scheduler.emitting.sources.jobs import missed_message
from scheduler.ops import metrics
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.effective_calendars import JobCalendars
from scheduler.postgres.jobs import skips
from scheduler.postgres.jobs.skips import SettledSkips
from scheduler.postgres.zone_files import PlannedZones
from scheduler.rabbit.frames import Publishable

# After a report, the next occurrences are collected for this time and reported together.
COLLECT_SECONDS = 10.0
RETRY_SECONDS = 10.0


@dataclass(slots=True)
class SkipEmission:
    """A job, and its skipped occurrences to report."""

    job: Job
    report: SkipReport | None  # None: the job must be planned again first
    missed: Missed | None = None


class DueSkips(Source[Job, SkipEmission]):
    """The source of ScheduleMissed with the reason `calendar`."""

    kind = skips.KIND
    tables: Sequence[str] = ("jobs",)
    classes = 1
    notice_seconds: float | None = None
    idle_seconds = 2.0

    def __init__(self) -> None:
        self._calendars = JobCalendars()
        self._zones = PlannedZones()

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[Job]:
        """Lock jobs with skipped occurrences to report."""
        claim = skips.claim(session, min(limit, skips.MAX_CLAIMED), since)
        if claim.things:
            self._calendars.load(session.query, claim.things)
            self._zones.load(session.query, claim.things)
        return claim

    def name(self, job: Job) -> str:
        """Return the job's id."""
        return job.id

    def decide(self, job: Job, now: datetime) -> SkipEmission:
        """Find the skipped occurrences."""
        definition = job.definition
        assert definition is not None  # noqa: S101 - only a defined job is pending
        spec = definition.spec
        effective = None if spec.calendar is None else self._calendars.find(job.tenant, spec.calendar)
        if effective is not None and effective.revision != job.calendar_revision:
            return SkipEmission(job, None)  # what was emitted or reported follows from the former calendar
        report = report_skips(job, planner_of(job, spec, effective, self._zones.clock(job)), now)
        missed = Missed(report.nominals, len(report.nominals), "calendar") if report.nominals else None
        return SkipEmission(job, report, missed)

    def messages(self, emission: SkipEmission, stamp: EmissionTime) -> Sequence[Publishable]:
        """Return the ScheduleMissed."""
        return () if emission.missed is None else (missed_message(emission.job, emission.missed, stamp),)

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[SkipEmission]], unreadable: Sequence[Job],
        times: BatchTimes
    ) -> datetime | None:
        """Store up to where occurrences are reported, and when to report the next ones."""
        settled = [
            SettledSkips(emission.job.id, emission.report.reported_until, _next(emission.report, times))
            for emission, _, refusal in results if refusal is None and emission.report is not None
        ]
        failed = [emission.job for emission, _, refusal in results
                  if refusal is not None or emission.report is None]
        later = times.confirmed_at + timedelta(seconds=RETRY_SECONDS)
        settled += [SettledSkips(job.id, job.reported_until, later) for job in (*failed, *unreadable)]
        skips.settle(session, settled)
        soonest = min((job.skip_at for job in settled if job.skip_at is not None), default=None)
        return LONG_AGO if soonest is not None and soonest <= times.claimed_at else soonest

    def report(self, results: Sequence[EmissionResult[SkipEmission]], times: BatchTimes) -> None:  # noqa: ARG002 - a source's
        """Count the reported occurrences."""
        metrics.jobs_missed.inc(sum(
            emission.missed.count for emission, _, refusal in results
            if emission.missed is not None and refusal is None
        ))


def _next(report: SkipReport, times: BatchTimes) -> datetime | None:
    if report.skip_at is None or not report.nominals or report.skip_at <= times.claimed_at:
        return report.skip_at
    return max(report.skip_at, times.confirmed_at + timedelta(seconds=COLLECT_SECONDS))
