"""Claim jobs with skipped occurrences to report, and settle them."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from scheduler.domain.jobs.job import Job
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession, array
from scheduler.postgres.jobs.columns import COLUMNS, SELECTED_OF_PLAN, read
from scheduler.resources import query

KIND = "skips"
MAX_CLAIMED = 100  # a search for skipped occurrences may take milliseconds
_CLAIM = query("jobs/claim_skips", selected=SELECTED_OF_PLAN)


class SettledSkips(NamedTuple):
    """A job whose skipped occurrences are reported up to a nominal instant, and when to report the next ones."""

    id: str
    reported_until: datetime | None
    skip_at: datetime | None


def claim(session: ClaimSession, limit: int, since: Sequence[datetime] = (LONG_AGO,)) -> Claim[Job]:
    """Lock jobs, without payload and target; if there are none, end the transaction."""
    rows = session.claim(KIND, _CLAIM, limit)
    claimed_at, seconds_to_next = rows[0][len(COLUMNS) :]
    jobs = [read(row[: len(COLUMNS)]) for row in rows if row[0] is not None]
    if not jobs:
        session.release()
    return Claim(jobs, claimed_at, seconds_to_next, tuple(since), full=len(jobs) >= limit)


def settle(session: ClaimSession, settled: Sequence[SettledSkips]) -> None:
    """Store the outcomes and release the jobs."""
    if not settled:
        session.settle([])
        return
    ids, reported, skip_at = zip(*settled, strict=True)
    session.settle([(query("jobs/settle_skips"), {
        "ids": array(ids), "reported": array(map(_moment, reported)), "skip_at": array(map(_moment, skip_at)),
    })])


def _moment(moment: datetime | None) -> str:
    return "NULL" if moment is None else moment.isoformat()
