"""Apply a batch of commands in one transaction."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby

from scheduler.commands.apply_calendars import apply_calendars
from scheduler.commands.apply_results import wake_for_runs
from scheduler.commands.audit_entries import all_over_amqp, callers, delayed_entry, job_entries, run_entries
from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome, decide_jobs, decide_retry
from scheduler.commands.job_versions import new_versions
from scheduler.commands.transaction_hooks import NO_HOOKS, TransactionHooks
from scheduler.domain.calendars import FindEffective, no_calendar
from scheduler.domain.errors import Unavailable
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome, Job, JobStatus
from scheduler.domain.messages import (
    DEFAULT_TENANT,
    Command,
    ScheduleCalendar,
    ScheduleCancel,
    ScheduleRequest,
    ScheduleRetry,
    ScheduleTrigger,
)
from scheduler.domain.runs.transitions import cancel_run
from scheduler.domain.runs.unannounced_ends import keep_unannounced_ends
from scheduler.postgres.audit import AuditEntry, write_entries
from scheduler.postgres.calendars import lock_names
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.delayed import store as delayed
from scheduler.postgres.duplicates import TriggerMessage, digest, known_triggers, remember_triggers
from scheduler.postgres.effective_calendars import TenantCalendar, find_effective
from scheduler.postgres.holds import release_expired_holds
from scheduler.postgres.jobs.due import KIND
from scheduler.postgres.jobs.store import lock, save
from scheduler.postgres.jobs.versions import insert_versions
from scheduler.postgres.locks import RowKeys, find_locked
from scheduler.postgres.runs import store as runs
from scheduler.postgres.wakeup import wake_producers


def apply_commands(
    connection: Connection, batch: Sequence[Incoming], wake_horizon: timedelta, hooks: TransactionHooks = NO_HOOKS,
    *, wait_for_locks: bool = True,
) -> list[MessageOutcome]:
    """Apply the commands in one transaction and return their outcomes in order.

    Commands whose rows another session has locked are not applied; their outcome is LOCKED.

    Producers poll; they are woken only for jobs and runs due within `wake_horizon`.
    """
    held: set[str] = set()  # ids of locked jobs that a hold delays
    try:
        return run_in_transaction(
            connection, batch, lambda cursor, part: _execute(cursor, part, wake_horizon, hooks, held),
            _find_locked, wait_for_locks=wait_for_locks,
        )
    finally:
        if held:
            # Releases skip jobs that this transaction locks. If this fails, a producer checks the expired hold.
            with suppress(Unavailable):
                release_expired_holds(connection, held)


def _execute(
    cursor: Cursor, batch: Sequence[Incoming], wake_horizon: timedelta, hooks: TransactionHooks, held: set[str]
) -> list[MessageOutcome]:
    used = _used_calendars(batch)
    changed = ScheduleCalendar in _kinds(batch)
    if changed or used:
        _lock_calendars(cursor, batch, used)
    if changed:
        outcomes = _apply_with_calendars(cursor, batch, wake_horizon, hooks, held)
    else:
        outcomes = _apply_in_order(cursor, batch, wake_horizon, hooks, held, used=used)
    hooks.saved(cursor)
    return outcomes


def _used_calendars(batch: Sequence[Incoming]) -> list[TenantCalendar]:
    """Return the calendars of the requests in a batch."""
    return [
        TenantCalendar(incoming.tenant, command.calendar) for incoming in batch
        # Not isinstance, which is slow for another model; commands have no subclasses.
        if type(command := incoming.command) is ScheduleRequest and command.calendar is not None
    ]


def _lock_calendars(cursor: Cursor, batch: Sequence[Incoming], used: Sequence[TenantCalendar]) -> None:
    changed = [incoming.command.name for incoming in batch if isinstance(incoming.command, ScheduleCalendar)]
    lock_names(cursor, changed, [calendar.name for calendar in used])


def _apply_with_calendars(
    cursor: Cursor, batch: Sequence[Incoming], wake_horizon: timedelta, hooks: TransactionHooks, held: set[str]
) -> list[MessageOutcome]:
    """Apply commands for calendars and for jobs in order: a request may use a calendar of the same batch."""
    outcomes: list[MessageOutcome] = []
    for are_calendars, part in groupby(batch, lambda incoming: isinstance(incoming.command, ScheduleCalendar)):
        commands = list(part)
        if are_calendars:
            outcomes += apply_calendars(cursor, commands)
        else:
            used = _used_calendars(commands)
            outcomes += _apply_in_order(cursor, commands, wake_horizon, hooks, held, used=used)
    return outcomes


def _apply_in_order(
    cursor: Cursor, batch: Sequence[Incoming], wake_horizon: timedelta, hooks: TransactionHooks, held: set[str],
    *, used: Sequence[TenantCalendar],
) -> list[MessageOutcome]:
    retries, others = [], batch
    if ScheduleRetry in _kinds(batch):
        retries = [incoming for incoming in batch if isinstance(incoming.command, ScheduleRetry)]
        others = [incoming for incoming in batch if not isinstance(incoming.command, ScheduleRetry)]
    outcomes = _apply_job_commands(cursor, others, wake_horizon, hooks, held, used=used) if others else []
    if retries:
        retried = iter(_apply_retries(cursor, retries, wake_horizon, hooks))
        rest = iter(outcomes)
        outcomes = [next(retried if isinstance(incoming.command, ScheduleRetry) else rest) for incoming in batch]
    return outcomes


def _find_locked(cursor: Cursor, batch: Sequence[Incoming]) -> set[str]:
    """Return the ids of jobs, and runs of retries, for which another session has locked a row."""
    retried = {incoming.about for incoming in batch if isinstance(incoming.command, ScheduleRetry)}
    jobs = {incoming.about for incoming in batch if not isinstance(incoming.command, ScheduleCalendar)} - retried
    cancelled = {incoming.about for incoming in batch if isinstance(incoming.command, ScheduleCancel)}
    return find_locked(
        cursor,
        RowKeys("jobs", jobs),
        RowKeys("runs", cancelled, key="job_id", row="event_id"),
        RowKeys("delayed_messages", cancelled, key="message_id"),
        *runs.row_keys(retried),
    )


def _apply_job_commands(
    cursor: Cursor, batch: Sequence[Incoming], wake_horizon: timedelta, hooks: TransactionHooks, held: set[str],
    *, used: Sequence[TenantCalendar],
) -> list[MessageOutcome]:
    now = database_time(cursor)
    started = time.monotonic()
    kinds = _kinds(batch)
    ids = [incoming.about for incoming in batch]
    stored = lock(cursor, ids, requested=kinds == {ScheduleRequest} and hooks is NO_HOOKS)
    held.update(job.id for job in stored.values() if job.held_by is not None)
    hooks.jobs_locked(stored, now)
    new_triggers = _mark_repeated(cursor, batch) if ScheduleTrigger in kinds else {}
    outcomes, jobs = decide_jobs(stored, batch, now, _find_calendars(cursor, [*used, *_stored_calendars(stored)]))
    elapsed = timedelta(seconds=time.monotonic() - started)  # mostly the wait for row locks
    makers = callers(batch)
    save(cursor, stored, jobs, makers)
    all_new = not stored and len(jobs) == len(batch)  # each command made another job
    if not all_new and (versions := new_versions(batch, outcomes, stored)):
        insert_versions(cursor, versions)
    if not (all_new and kinds == {ScheduleRequest} and all_over_amqp(makers.values())):
        _write_audit(cursor, job_entries(batch, outcomes, stored))
    if new_triggers:
        _remember_triggers(cursor, new_triggers, outcomes)
    if ScheduleCancel in kinds:
        _cancel_runs_and_delayed(cursor, batch, outcomes, now)
    next_wake_at = _next_wake_at(jobs.values(), now + wake_horizon + elapsed)
    if next_wake_at is not None:
        wake_producers(cursor, KIND, next_wake_at)
    return outcomes


def _write_audit(cursor: Cursor, entries: Sequence[AuditEntry]) -> None:
    if entries:
        write_entries(cursor, entries)


def _stored_calendars(stored: Mapping[str, Job]) -> list[TenantCalendar]:
    return [
        TenantCalendar(job.tenant, name) for job in stored.values()
        if job.definition is not None and (name := job.definition.spec.calendar) is not None
    ]


def _find_calendars(cursor: Cursor, used: Sequence[TenantCalendar]) -> FindEffective:
    """Return a lookup of these calendars by tenant and name."""
    if not used:
        return no_calendar
    effective = find_effective(cursor, used)
    return lambda tenant, name: effective.get(TenantCalendar(tenant, name))


def _mark_repeated(cursor: Cursor, batch: Sequence[Incoming]) -> dict[int, TriggerMessage]:
    """Mark triggers that were stored before or repeat in the batch; return the others by position."""
    messages = {
        position: (incoming.about, digest(*(part.encode("utf-8", "surrogatepass") for part in key)))
        for position, incoming in enumerate(batch) if (key := incoming.duplicate_key) is not None
    }
    seen = known_triggers(cursor, messages.values()) if messages else set()
    new = {}
    for position, message in messages.items():
        batch[position].repeated = message in seen
        if message not in seen:
            new[position] = message
            seen.add(message)
    return new


def _remember_triggers(
    cursor: Cursor, triggers: Mapping[int, TriggerMessage], outcomes: Sequence[MessageOutcome]
) -> None:
    """Store the messages of accepted triggers; a rejected one may be replayed."""
    accepted = [
        message for position, message in triggers.items()
        if isinstance(outcome := outcomes[position], CommandOutcome) and outcome.status != "superseded"
    ]
    if accepted:
        remember_triggers(cursor, accepted)


def _kinds(batch: Iterable[Incoming]) -> set[type[Command]]:
    return {type(incoming.command) for incoming in batch}


def _cancel_runs_and_delayed(
    cursor: Cursor, batch: Sequence[Incoming], outcomes: Sequence[MessageOutcome], now: datetime
) -> None:
    """Cancel the delayed messages and the open runs with the ids of cancelled jobs."""
    cancels = [
        (incoming, outcome) for incoming, outcome in zip(batch, outcomes, strict=True)
        if isinstance(incoming.command, ScheduleCancel) and isinstance(outcome, CommandOutcome)
    ]
    if delayed_cancels := [cancel for cancel in cancels if _may_cancel_delayed(cancel[0])]:
        _cancel_delayed(cursor, delayed_cancels)
    if stopping := [outcome for _, outcome in cancels if outcome.stops_runs]:
        _cancel_runs(cursor, stopping, now)


def _may_cancel_delayed(cancel: Incoming) -> bool:
    return cancel.tenant == DEFAULT_TENANT if cancel.cancels_delayed is None else cancel.cancels_delayed


def _cancel_runs(cursor: Cursor, cancels: Sequence[CommandOutcome], now: datetime) -> None:
    """Cancel the open runs of cancelled jobs.

    A retried run may outlive the row of its job, and another tenant may have reused the id since.
    """
    owners = {outcome.job.id: outcome.job.tenant for outcome in cancels}
    opened = {
        event_id: run for event_id, run in runs.lock_runs_of_jobs(cursor, owners.keys()).items()
        if run.known_occurrence.tenant == owners[run.known_occurrence.job_id]
    }
    after = {event_id: cancel_run(run, now) for event_id, run in opened.items()}
    runs.save(cursor, opened, {}, after)
    wake_for_runs(cursor, opened, after, now)
    ended = {run.known_occurrence.job_id for event_id, run in after.items() if run is not opened[event_id]}
    for outcome in cancels:
        if outcome.job.id in ended:  # even if the job itself was done
            ended.discard(outcome.job.id)
            outcome.status = "cancelled"


def _cancel_delayed(cursor: Cursor, cancels: Sequence[tuple[Incoming, CommandOutcome]]) -> None:
    """Cancel delayed messages whose message_id is the id of a cancel."""
    ids = {outcome.job.id for _, outcome in cancels}
    undefined = {outcome.job.id for _, outcome in cancels if outcome.job.definition is None}
    if jobs := ids - undefined:
        # Look first: a DELETE waits for a lock on the table even if it deletes nothing.
        ids = undefined | delayed.find_stored(cursor, jobs).keys()
    cancelled = delayed.cancel(cursor, ids, undefined) if ids else set()
    entries = []
    for incoming, outcome in cancels:
        if outcome.job.id in cancelled:
            outcome.status = "cancelled"
            entries.append(delayed_entry(incoming))
    _write_audit(cursor, entries)


def _apply_retries(
    cursor: Cursor, batch: Sequence[Incoming], wake_horizon: timedelta, hooks: TransactionHooks
) -> list[MessageOutcome]:
    now = database_time(cursor)
    ids = {incoming.about for incoming in batch}
    opened = runs.lock(cursor, ids)
    finished = runs.lock_finished(cursor, ids - opened.keys())
    if missing := ids - opened.keys() - finished.keys():
        opened |= runs.lock(cursor, missing)  # another consumer may have just reopened a run
    before = opened | finished
    hooks.runs_locked(before)
    after = dict(before)
    outcomes: list[MessageOutcome] = [decide_retry(after, incoming, now) for incoming in batch]
    keep_unannounced_ends(opened, after)
    runs.save(cursor, opened, finished, after)
    _write_audit(cursor, run_entries(batch, outcomes, before))
    wake_for_runs(cursor, before, after, now + wake_horizon)
    return outcomes


def _next_wake_at(jobs: Iterable[Job], until: datetime) -> datetime | None:
    """Return the earliest wake_at of pending jobs, or None if it is after `until`.

    Unchanged jobs count too: a producer skips jobs that are locked here.
    """
    earliest = None
    for job in jobs:
        wake_at = job.wake_at
        if wake_at is not None and wake_at <= until and job.status is JobStatus.PENDING:
            earliest = until = wake_at
    return earliest
