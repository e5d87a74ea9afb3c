"""Apply a batch of results and worker reports in one transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome, decide_result
from scheduler.commands.transaction_hooks import NO_HOOKS, TransactionHooks
from scheduler.domain.messages import Overlap
from scheduler.domain.runs.marker import Marker
from scheduler.domain.runs.refusal import give_back, is_refusal
from scheduler.domain.runs.result import Result, WorkerReport
from scheduler.domain.runs.run import IDLE_SECONDS, Run
from scheduler.domain.runs.unannounced_ends import keep_unannounced_ends
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.holds import release_jobs
from scheduler.postgres.jobs.due import KIND as JOBS
from scheduler.postgres.locks import RowKeys, find_locked
from scheduler.postgres.runs.store import KIND, lock, lock_finished, lock_for_result, row_keys, save
from scheduler.postgres.wakeup import wake_producers
from scheduler.postgres.worker_rows import list_live_offers, save_workers

_IDLE = timedelta(seconds=IDLE_SECONDS + 0.1)  # allows for the jitter of sleeps


def record_results(
    connection: Connection, batch: Sequence[Result | WorkerReport | Marker], wake_horizon: timedelta,
    hooks: TransactionHooks = NO_HOOKS, *, wait_for_locks: bool = True,
) -> list[MessageOutcome]:
    """Apply the results in one transaction and return their outcomes in order.

    Results whose rows another session has locked are not applied; their outcome is LOCKED.
    """
    return run_in_transaction(
        connection, batch, lambda cursor, part: _execute(cursor, part, wake_horizon, hooks), _find_locked,
        wait_for_locks=wait_for_locks,
    )


def _find_locked(cursor: Cursor, batch: Sequence[Result | WorkerReport | Marker]) -> set[str]:
    """Return the runs and the workers that another session has locked."""
    events = {message.about for message in batch if isinstance(message, Result)}
    workers = {message.about for message in batch if isinstance(message, WorkerReport)}
    return find_locked(cursor, *row_keys(events), RowKeys("workers", workers))


def _execute(
    cursor: Cursor, batch: Sequence[Result | WorkerReport | Marker], wake_horizon: timedelta,
    hooks: TransactionHooks,
) -> list[MessageOutcome]:
    save_workers(cursor, [report for report in batch if isinstance(report, WorkerReport) and report.trusted])
    results = [message for message in batch if isinstance(message, Result)]
    outcomes = iter(_record(cursor, results, wake_horizon, hooks) if results else [])
    return [next(outcomes) if isinstance(message, Result) else "recorded" for message in batch]


def _record(cursor: Cursor, batch: Sequence[Result], wake_horizon: timedelta,
            hooks: TransactionHooks) -> list[MessageOutcome]:
    now = database_time(cursor)
    ids = {result.event_id for result in batch}
    # Only hooks read the whole run; a result alone needs fewer columns.
    opened = lock_for_result(cursor, ids) if hooks is NO_HOOKS else lock(cursor, ids)
    missing = ids - opened.keys()
    finished = lock_finished(cursor, missing) if missing else {}
    before = opened | finished
    hooks.runs_locked(before)
    runs = dict(before)
    batch = _give_back(cursor, batch, runs)
    outcomes: list[MessageOutcome] = [decide_result(runs, result, now) for result in batch]
    keep_unannounced_ends(opened, runs)
    save(cursor, opened, finished, runs)
    wake_for_runs(cursor, before, runs, now + max(wake_horizon, _IDLE))
    hooks.saved(cursor)
    return outcomes


def _give_back(cursor: Cursor, batch: Sequence[Result], runs: Mapping[str, Run]) -> Sequence[Result]:
    """Return the results, with a snooze for each call that another live worker may be allowed to make."""
    if not any(is_refusal(result, runs.get(result.event_id)) for result in batch):
        return batch
    workers = list_live_offers(cursor)
    return [give_back(result, run, workers) if (run := runs.get(result.event_id)) and is_refusal(result, run)
            else result for result in batch]


def wake_for_runs(cursor: Cursor, before: Mapping[str, Run], after: Mapping[str, Run], until: datetime) -> None:
    """Release jobs whose run has ended, and wake producers for runs due by `until`.

    The release only saves time: producers release the jobs of ended runs when they publish the end, after this
    commit (postgres/runs/due.py).
    """
    changed = [run for event_id, run in after.items() if run is not before.get(event_id)]
    ended = [
        run.known_occurrence.job_id for run in changed
        if not run.open and run.known_occurrence.policy.overlap is Overlap.WAIT
    ]
    if ended and (due_from := release_jobs(cursor, ended)) is not None:
        wake_producers(cursor, JOBS, due_from)
    next_wake_at = min((run.wake_at for run in changed if run.wake_at is not None), default=None)
    if next_wake_at is not None and next_wake_at <= until:
        wake_producers(cursor, KIND, next_wake_at)
