"""The same command for all that match a filter: in batches, newest first, so that anyone can stop in between."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from scheduler.commands.apply_batch import execute
from scheduler.commands.decide_commands import LOCKED
from scheduler.commands.operator_commands import RowLocked
from scheduler.commands.transaction_hooks import TransactionHooks
from scheduler.domain.caller import Caller
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.domain.messages import (
    Command,
    ScheduleCancel,
    SchedulePause,
    ScheduleResume,
    ScheduleRetry,
)
from scheduler.ops import metrics
from scheduler.postgres.connection import Connection
from scheduler.postgres.jobs.lists import JobFilter, page_of_job_ids
from scheduler.postgres.list_rows import ListRow
from scheduler.postgres.runs.lists import RunFilter, page_of_run_ids

BATCH = 500
# By verb: the statuses in which it makes a difference; the others match, and are left as they are.
_JOBS: dict[str, tuple[type[ScheduleCancel | SchedulePause | ScheduleResume], frozenset[str]]] = {
    "pause": (SchedulePause, frozenset({"pending"})),
    "resume": (ScheduleResume, frozenset({"paused"})),
    "cancel": (ScheduleCancel, frozenset({"pending", "paused"})),
}
_RETRIED = frozenset({"dead", "cancelled"})


@dataclass(slots=True)
class BulkProgress:
    """How far it has come: how many matched so far, and from where it goes on; None when all is done."""

    matched: int = 0
    locked: int = 0  # another session has locked their rows: they are as they were
    place: tuple[datetime, str] | None = None
    done: bool = False


class JobsOnlyHooks(TransactionHooks):
    """Keeps a command for jobs that match a filter from delayed messages with the same ids."""

    def may_cancel_delayed(self, incoming: Incoming) -> bool:  # noqa: ARG002 - whoever sends it
        """Return False."""
        return False


_JOBS_ONLY = JobsOnlyHooks()
Step = Callable[[Connection, BulkProgress], BulkProgress]


def job_step(verb: str, wanted: JobFilter, caller: Caller, soon: timedelta) -> Step:
    """Return one step of a command for all jobs that match: call it until it is done."""
    kind, statuses = _JOBS[verb]

    def command(each: ListRow) -> Command:
        return kind(id=UUID(each.id), tenant=each.tenant)

    def step(connection: Connection, progress: BulkProgress) -> BulkProgress:
        found = page_of_job_ids(connection, wanted, BATCH, progress.place)
        connection.rollback()  # what was read for the list is no part of the change
        changing = [_incoming(command(each), each, caller) for each in found if each.status in statuses]
        return _step(connection, progress, found, changing, soon)

    return step


def retry_step(wanted: RunFilter, caller: Caller, soon: timedelta) -> Step:
    """Return one step of a retry for all runs that match."""

    def command(each: ListRow) -> Command:
        return ScheduleRetry(event_id=UUID(each.id), tenant=each.tenant)

    def step(connection: Connection, progress: BulkProgress) -> BulkProgress:
        found = page_of_run_ids(connection, wanted, BATCH, progress.place)
        connection.rollback()
        changing = [_incoming(command(each), each, caller) for each in found if each.status in _RETRIED]
        return _step(connection, progress, found, changing, soon)

    return step


def _incoming(command: Command, each: ListRow, caller: Caller) -> Incoming:
    return Incoming(command, each.id, tenant=each.tenant, caller=caller)


def _step(
    connection: Connection, progress: BulkProgress, found: list[ListRow], changing: list[Incoming], soon: timedelta
) -> BulkProgress:
    locked = progress.locked
    if changing:
        verdicts = execute(connection, changing, soon, _JOBS_ONLY)
        cancelled = [each for each in verdicts if isinstance(each, CommandOutcome) and each.status == "cancelled"]
        metrics.jobs_cancelled.inc(len(cancelled))
        locked += verdicts.count(LOCKED)
    matched, done = progress.matched + len(found), len(found) < BATCH
    if done and locked:
        raise RowLocked(f"{locked:,} of the {matched:,} that match, and the others are done")
    place = (found[-1].at, found[-1].id) if found else progress.place
    return BulkProgress(matched, locked, place, done=done)
