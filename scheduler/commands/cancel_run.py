"""Cancel one open run for an operator; its job and its other runs continue."""

from dataclasses import dataclass
from datetime import timedelta

from scheduler.commands.apply_results import wake_for_runs
from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome
from scheduler.commands.operator_commands import NoSuchRecord, RunCommandHooks, raise_unapplied
from scheduler.domain.caller import Caller
from scheduler.domain.errors import SchedulerError
from scheduler.domain.runs import transitions
from scheduler.domain.runs.run import Run, RunStatus
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.locks import find_locked
from scheduler.postgres.runs import store as runs


class RunHasEnded(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """The run has succeeded, is dead, or was never tracked: there is nothing to cancel."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__(f"the run is {status.value}: only open runs can be cancelled")


@dataclass(frozen=True, slots=True)
class RunCancel:
    """A cancel of one run."""

    about: str  # its event_id


def cancel_run(
    connection: Connection, event_id: str, tenant: str | None, wake_horizon: timedelta, caller: Caller
) -> Run:
    """Cancel the run and return it. Raises NoSuchRecord, RunHasEnded or RowLocked."""
    hooks = RunCommandHooks(event_id, tenant, reporter=caller, action="cancel")
    [outcome] = run_in_transaction(
        connection, [RunCancel(event_id)], lambda cursor, _: _execute(cursor, event_id, wake_horizon, hooks),
        lambda cursor, _: find_locked(cursor, *runs.row_keys([event_id])),
    )
    raise_unapplied(outcome, f"the run {event_id}")
    if hooks.run is None:
        raise NoSuchRecord
    return hooks.run


def _execute(
    cursor: Cursor, event_id: str, wake_horizon: timedelta, hooks: RunCommandHooks
) -> list[MessageOutcome]:
    now = database_time(cursor)
    opened = runs.lock(cursor, [event_id])
    # A producer may have just archived the run, and a retry may have just reopened it.
    finished = {} if opened else runs.lock_finished(cursor, [event_id])
    if not opened and not finished:
        opened = runs.lock(cursor, [event_id])
    hooks.runs_locked(opened | finished)
    run = (opened | finished)[event_id]
    if run.status is not RunStatus.CANCELLED and not run.open:
        raise RunHasEnded(run.status)
    after = {event_id: transitions.cancel_run(run, now)}
    runs.save(cursor, opened, finished, after)
    wake_for_runs(cursor, {event_id: run}, after, now + wake_horizon)
    hooks.saved(cursor)
    return ["unchanged" if after[event_id] is run else "recorded"]
