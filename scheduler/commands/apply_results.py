"""Results become rows: a batch is one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome, decide_result
from scheduler.commands.transaction_hooks import NO_HOOKS, TransactionHooks
from scheduler.domain.messages import Overlap
from scheduler.domain.runs.marker import Marker
from scheduler.domain.runs.result import Result, WorkerReport
from scheduler.domain.runs.run import IDLE_SECONDS, Run
from scheduler.domain.runs.unannounced_ends import keep_unannounced_ends
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.holds import release_jobs
from scheduler.postgres.locks import find_locked
from scheduler.postgres.runs.store import KIND, find_locked_runs, lock, lock_finished, lock_for_result, save
from scheduler.postgres.wakeup import wake_producers
from scheduler.postgres.worker_rows import save_workers

_IDLE = timedelta(seconds=IDLE_SECONDS + 0.1)  # a little more, for a sleep's jitter


def execute_results(
    connection: Connection, batch: Sequence[Result | WorkerReport | Marker], soon: timedelta,
    attendant: TransactionHooks = NO_HOOKS, *, wait_for_locks: bool = True,
) -> list[MessageOutcome]:
    """Apply the results in one transaction and return what became of each, in order.

    Those about rows that another session has locked are not applied: LOCKED.
    """
    return run_in_transaction(
        connection, batch, lambda cursor, part: _execute(cursor, part, soon, attendant), _find_locked,
        wait_for_locks=wait_for_locks,
    )


def _find_locked(cursor: Cursor, batch: Sequence[Result | WorkerReport | Marker]) -> set[str]:
    """Return the runs and the workers that another session has locked."""
    events = {each.about for each in batch if isinstance(each, Result)}
    workers = {each.about for each in batch if isinstance(each, WorkerReport)}
    return find_locked_runs(cursor, events) | find_locked(cursor, "workers", workers)


def _execute(
    cursor: Cursor, batch: Sequence[Result | WorkerReport | Marker], soon: timedelta, attendant: TransactionHooks
) -> list[MessageOutcome]:
    heard = [each for each in batch if isinstance(each, WorkerReport) and each.trusted]
    results = [each for each in batch if isinstance(each, Result)]
    save_workers(cursor, heard)
    recorded = iter(_record(cursor, results, soon, attendant) if results else [])
    return [next(recorded) if isinstance(each, Result) else "recorded" for each in batch]


def _record(cursor: Cursor, batch: Sequence[Result], soon: timedelta,
            attendant: TransactionHooks) -> list[MessageOutcome]:
    now = database_time(cursor)
    ids = {result.event_id for result in batch}
    # Nobody but a caller who waits is shown the run itself.
    opened = lock_for_result(cursor, ids) if attendant is NO_HOOKS else lock(cursor, ids)
    missing = ids - opened.keys()
    finished = lock_finished(cursor, missing) if missing else {}
    known = opened | finished
    attendant.runs_locked(known)
    runs = dict(known)
    verdicts: list[MessageOutcome] = [decide_result(runs, result, now) for result in batch]
    keep_unannounced_ends(opened, runs)
    save(cursor, opened, finished, runs)
    wake_for_runs(cursor, known, runs, now + max(soon, _IDLE))
    attendant.saved(cursor)
    return verdicts


def wake_for_runs(cursor: Cursor, before: Mapping[str, Run], after: Mapping[str, Run], until: datetime) -> None:
    """Release jobs whose run has ended, and wake producers for what falls due soon.

    The release here only saves time. Producers release the jobs of every run that has ended when they publish its
    end, which is after this commit (postgres/runs/due.py).
    """
    changed = [run for event_id, run in after.items() if run is not before.get(event_id)]
    ended = [
        run.occurrence.job_id for run in changed
        if not run.open and run.occurrence is not None and run.occurrence.policy.overlap is Overlap.WAIT
    ]
    if ended:
        release_jobs(cursor, ended)
    soonest = _soonest(changed)
    if soonest is not None and soonest <= until:
        wake_producers(cursor, KIND, soonest)


def _soonest(runs: Iterable[Run]) -> datetime | None:
    return min((run.wake_at for run in runs if run.wake_at is not None), default=None)
