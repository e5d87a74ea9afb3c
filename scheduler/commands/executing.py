"""Commands become rows: a batch is one transaction."""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from scheduler.commands.judging import Verdict, judge
from scheduler.domain.errors import Problem, Reason, Rejected, Unavailable
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.postgres.connection import Connection, Contended, Unstorable, database_time, transaction
from scheduler.postgres.jobs.store import Cursor, lock, save, wake_producers

_TRIES = 20


def execute(connection: Connection, batch: Sequence[Incoming], soon: timedelta) -> list[Verdict]:
    """Apply the commands in one transaction and return what became of each, in order.

    Producers look again by themselves; they are woken only for what falls due sooner than `soon` from now.
    """
    for _ in range(_TRIES):
        try:
            with transaction(connection) as cursor:
                return _execute(cursor, batch, soon)
        except Contended:
            # Another consumer created or changed one of these jobs at the same moment; now they are all
            # there, and the next try locks them in order.
            continue
        except Unstorable as error:
            # Some value that Postgres refuses although it passed validation: find whose it is.
            if len(batch) > 1:
                return [verdict for incoming in batch for verdict in execute(connection, [incoming], soon)]
            return [Rejected([Problem("body", f"Postgres cannot store it: {str(error)[:300]}")], Reason.STORAGE)]
    raise Unavailable("Postgres: too many consumers store the same jobs at once")


def _execute(cursor: Cursor, batch: Sequence[Incoming], soon: timedelta) -> list[Verdict]:
    now = database_time(cursor)
    started = time.monotonic()
    known = lock(cursor, [incoming.job_id for incoming in batch])
    verdicts, jobs = judge(known, batch, now)
    until = now + soon + timedelta(seconds=time.monotonic() - started)  # others may have held the rows for long
    save(cursor, known, jobs)
    soonest = _soonest(jobs.values(), until)
    if soonest is not None:
        wake_producers(cursor, soonest)
    return verdicts


def _soonest(jobs: Iterable[Job], until: datetime) -> datetime | None:
    """Return when the first of them wakes if it is not later than `until`.

    Of those that stayed as they were too: a producer that came by while they were locked has skipped them.
    """
    soonest = None
    for job in jobs:
        wake_at = job.wake_at
        if wake_at is not None and wake_at <= until and job.status is JobStatus.PENDING:
            soonest = until = wake_at
    return soonest
