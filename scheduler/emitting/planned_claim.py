"""Claim due jobs with regard to the zone data that planned them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence import Clock, tzdata_version, zone_names
from scheduler.domain.recurrence.zone_changes import zone_changed
from scheduler.domain.recurrence.zone_data import current
from scheduler.domain.recurrence.zones import clock_in
from scheduler.ops.logs import get_logger
from scheduler.postgres.claims import Claim, ClaimSession
from scheduler.postgres.jobs.due import make_claim
from scheduler.postgres.zone_files import RecordedZones

log = get_logger(__name__)


class PlannedClaim:
    """Claims jobs, but leaves jobs that newer zone data planned in a changed zone to newer replicas."""

    def __init__(self) -> None:
        self._version = tzdata_version()
        self._recorded = RecordedZones()
        self._left_zones: set[str] = set()
        self._claim = make_claim(self._version)

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[Job]:
        """Lock the oldest due jobs; `zone_version` is set if other zone data planned the job."""
        claim = self._claim.claim(session, limit, since)
        others = [job for job in claim.things if job.zone_version is not None]
        left = {job.id for job in others if self._is_left(session, job, claim.claimed_at)} if others else ()
        if not left:
            return claim
        # Later claims do not lock them at all.
        self._claim = make_claim(self._version, self._left_zones)
        jobs = [job for job in claim.things if job.id not in left]
        if not jobs:
            session.release()
        return replace(claim, things=jobs)

    def clock(self, job: Job) -> Clock | None:
        """Return the clock that planned a job of the last claims; None for that of this process."""
        name, version = job.requested.spec.timezone, job.zone_version or ""
        data = self._recorded.loaded(version, name)
        return None if data is None else clock_in(data, name)

    def _is_left(self, session: ClaimSession, job: Job, now: datetime) -> bool:
        """Load the zone data that planned a job; return whether newer replicas emit the job."""
        name, version = job.requested.spec.timezone, job.zone_version or ""
        data = self._recorded.data(version, name, session.query)
        if version < self._version:
            return False
        if data is not None and name in zone_names() and not zone_changed(name, current(), data, now):
            return False
        if name not in self._left_zones:
            self._left_zones.add(name)
            log.warning("jobs left to replicas with newer zone data", zone=name, version=self._version,
                        newer_version=version, do="upgrade this replica, or keep one with the newer data running")
        return True
