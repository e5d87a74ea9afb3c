"""Apply one command to all jobs or runs that match a filter, in batches, newest first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.decide_commands import LOCKED
from scheduler.commands.operator_commands import RowsLocked
from scheduler.domain.caller import Caller
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.domain.messages import BULK_VERBS, Command, ScheduleRetry
from scheduler.ops import metrics
from scheduler.postgres.connection import Connection
from scheduler.postgres.jobs.lists import JobFilter, page_of_job_ids, rows_of_jobs
from scheduler.postgres.list_rows import ListRow
from scheduler.postgres.runs.lists import RunFilter, page_of_run_ids

BATCH = 500
_RETRIED = frozenset({"dead", "cancelled"})


@dataclass(slots=True)
class BulkProgress:
    """Counts so far, and the position of the last row read."""

    matched: int = 0
    locked: int = 0  # not changed: another session has locked their rows
    position: tuple[datetime, str] | None = None
    place: int = 0  # of the last audit entry read, for an undo
    done: bool = False


Step = Callable[[Connection, BulkProgress], BulkProgress]


def job_step(verb: str, job_filter: JobFilter, caller: Caller, wake_horizon: timedelta) -> Step:
    """Return a function that applies the command to one batch of matching jobs; call it until it is done."""

    def step(connection: Connection, progress: BulkProgress) -> BulkProgress:
        rows = page_of_job_ids(connection, job_filter, BATCH, progress.position)
        connection.rollback()  # end the read before the change
        return _step(connection, progress, rows, _commands(verb, rows, caller), wake_horizon)

    return step


def chosen_step(
    verb: str, ids: Sequence[str], tenant: str | None, caller: Caller, wake_horizon: timedelta
) -> Step:
    """Return a function that applies the command to fewer than BATCH chosen jobs of the tenant."""

    def step(connection: Connection, progress: BulkProgress) -> BulkProgress:
        rows = [row for row in rows_of_jobs(connection, ids, tenant) if row.status in BULK_VERBS[verb].changes]
        connection.rollback()
        return _step(connection, progress, rows, _commands(verb, rows, caller), wake_horizon)

    return step


def _commands(verb: str, rows: Iterable[ListRow], caller: Caller) -> list[Incoming]:
    return [incoming_verb(verb, row.id, row.tenant, caller)
            for row in rows if row.status in BULK_VERBS[verb].changes]


def incoming_verb(verb: str, job_id: str, tenant: str, caller: Caller) -> Incoming:
    """Return the command of a bulk action for one job."""
    return _incoming(BULK_VERBS[verb](id=UUID(job_id), tenant=tenant), job_id, tenant, caller)


def retry_step(run_filter: RunFilter, caller: Caller, wake_horizon: timedelta) -> Step:
    """Return a function that retries one batch of matching runs; call it until it is done."""

    def step(connection: Connection, progress: BulkProgress) -> BulkProgress:
        rows = page_of_run_ids(connection, run_filter, BATCH, progress.position)
        connection.rollback()
        commands = [
            _incoming(ScheduleRetry(event_id=UUID(row.id), tenant=row.tenant), row.id, row.tenant, caller)
            for row in rows if row.status in _RETRIED
        ]
        return _step(connection, progress, rows, commands, wake_horizon)

    return step


def _incoming(command: Command, about: str, tenant: str, caller: Caller) -> Incoming:
    return Incoming(command, about, tenant=tenant, caller=caller, cancels_delayed=False)


def _step(
    connection: Connection, progress: BulkProgress, rows: list[ListRow], commands: list[Incoming],
    wake_horizon: timedelta,
) -> BulkProgress:
    locked = progress.locked
    if commands:
        outcomes = apply_commands(connection, commands, wake_horizon)
        metrics.jobs_cancelled.inc(sum(
            isinstance(outcome, CommandOutcome) and outcome.status == "cancelled" for outcome in outcomes
        ))
        locked += outcomes.count(LOCKED)
    matched, done = progress.matched + len(rows), len(rows) < BATCH
    if done and locked:
        raise RowsLocked(f"{locked:,} of {matched:,} matches (the others are done)")
    position = (rows[-1].at, rows[-1].id) if rows else progress.position
    return BulkProgress(matched, locked, position, done=done)
