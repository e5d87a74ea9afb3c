"""Commands become rows: a batch is one transaction."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from scheduler.commands.apply_results import wake_for_runs
from scheduler.commands.audit_entries import callers, delayed_entry, job_entries, run_entries
from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome, decide_jobs, decide_retry
from scheduler.commands.transaction_hooks import NO_HOOKS, TransactionHooks
from scheduler.domain.errors import Unavailable
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome, Job, JobStatus
from scheduler.domain.messages import (
    Command,
    ScheduleCancel,
    ScheduleRequest,
    ScheduleRetry,
    ScheduleTrigger,
)
from scheduler.domain.runs.transitions import cancel_run
from scheduler.domain.runs.unannounced_ends import keep_unannounced_ends
from scheduler.postgres import audit
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.delayed import store as delayed
from scheduler.postgres.duplicates import TriggerMessage, digest, known_triggers, remember_triggers
from scheduler.postgres.holds import release_expired_holds
from scheduler.postgres.jobs.due import KIND
from scheduler.postgres.jobs.store import lock, save
from scheduler.postgres.locks import find_locked
from scheduler.postgres.runs import store as runs
from scheduler.postgres.wakeup import wake_producers


def execute(
    connection: Connection, batch: Sequence[Incoming], soon: timedelta, attendant: TransactionHooks = NO_HOOKS,
    *, wait_for_locks: bool = True,
) -> list[MessageOutcome]:
    """Apply the commands in one transaction and return what became of each, in order.

    Those about rows that another session has locked are not applied: LOCKED.

    Producers look again by themselves; they are woken only for what falls due sooner than `soon` from now.
    """
    held: set[str] = set()
    try:
        return run_in_transaction(
            connection, batch, lambda cursor, part: _execute(cursor, part, soon, attendant, held), _find_locked,
            wait_for_locks=wait_for_locks,
        )
    finally:
        if held:
            # A release skips jobs that are locked here. If this fails, a producer checks the hold when it expires.
            with suppress(Unavailable):
                release_expired_holds(connection, held)


def _execute(
    cursor: Cursor, batch: Sequence[Incoming], soon: timedelta, attendant: TransactionHooks, held: set[str]
) -> list[MessageOutcome]:
    retries, others = [], batch
    if ScheduleRetry in _kinds(batch):
        retries = [incoming for incoming in batch if isinstance(incoming.command, ScheduleRetry)]
        others = [incoming for incoming in batch if not isinstance(incoming.command, ScheduleRetry)]
    told = _execute_jobs(cursor, others, soon, attendant, held) if others else []
    if retries:
        retried = iter(_execute_retries(cursor, retries, soon, attendant))
        rest = iter(told)
        told = [next(retried if isinstance(each.command, ScheduleRetry) else rest) for each in batch]
    attendant.saved(cursor)
    return told


def _find_locked(cursor: Cursor, batch: Sequence[Incoming]) -> set[str]:
    """Return the jobs, and the runs of retries, that another session has locked, or something that they need."""
    retried = {incoming.about for incoming in batch if isinstance(incoming.command, ScheduleRetry)}
    jobs = {incoming.about for incoming in batch} - retried
    cancelled = {incoming.about for incoming in batch if isinstance(incoming.command, ScheduleCancel)}
    return (
        find_locked(cursor, "jobs", jobs)
        | find_locked(cursor, "runs", cancelled, key="job_id", row="event_id")
        | find_locked(cursor, "delayed_messages", cancelled, key="message_id")
        | runs.find_locked_runs(cursor, retried)
    )


def _execute_jobs(
    cursor: Cursor, batch: Sequence[Incoming], soon: timedelta, attendant: TransactionHooks, held: set[str]
) -> list[MessageOutcome]:
    now = database_time(cursor)
    started = time.monotonic()
    kinds = _kinds(batch)
    ids = [incoming.about for incoming in batch]
    known = lock(cursor, ids, requested=kinds == {ScheduleRequest} and attendant is NO_HOOKS)
    held.update(job.id for job in known.values() if job.held_by is not None)
    attendant.jobs_locked(known, now)
    named = _mark_repeated(cursor, batch) if ScheduleTrigger in kinds else {}
    verdicts, jobs = decide_jobs(known, batch, now)
    until = now + soon + timedelta(seconds=time.monotonic() - started)  # others may have held the rows for long
    save(cursor, known, jobs, callers(batch))
    if entries := job_entries(batch, verdicts, known):
        audit.write_entries(cursor, entries)
    if named:
        _remember_triggers(cursor, named, verdicts)
    if ScheduleCancel in kinds:
        _cancel_beside(cursor, batch, verdicts, now, attendant)
    soonest = _soonest(jobs.values(), until)
    if soonest is not None:
        wake_producers(cursor, KIND, soonest)
    return verdicts


def _mark_repeated(cursor: Cursor, batch: Sequence[Incoming]) -> dict[int, TriggerMessage]:
    """Mark triggers that were stored before or are in the batch twice; return the others by position."""
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
    cursor: Cursor, named: Mapping[int, TriggerMessage], verdicts: Sequence[MessageOutcome]
) -> None:
    """Remember the messages of triggers that were accepted: a rejected one may be replayed."""
    accepted = [
        message for position, message in named.items()
        if isinstance(verdict := verdicts[position], CommandOutcome) and verdict.status != "superseded"
    ]
    if accepted:
        remember_triggers(cursor, accepted)


def _kinds(batch: Iterable[Incoming]) -> set[type[Command]]:
    return {type(incoming.command) for incoming in batch}


def _cancel_beside(
    cursor: Cursor, batch: Sequence[Incoming], verdicts: Sequence[MessageOutcome], now: datetime,
    attendant: TransactionHooks
) -> None:
    """Cancel what else a cancel is about: a delayed message, and the open runs of its job."""
    cancels = [
        (incoming, verdict) for incoming, verdict in zip(batch, verdicts, strict=True)
        if isinstance(incoming.command, ScheduleCancel) and isinstance(verdict, CommandOutcome)
    ]
    if of_delayed := [each for each in cancels if attendant.may_cancel_delayed(each[0])]:
        _cancel_delayed(cursor, of_delayed)
    if stopping := [verdict for _, verdict in cancels if verdict.stops_runs]:
        _cancel_runs(cursor, stopping, now)


def _cancel_runs(cursor: Cursor, cancels: Sequence[CommandOutcome], now: datetime) -> None:
    """Make no further attempt at the open runs of jobs that were cancelled.

    A run that was retried may outlive the row of its job, and another tenant may have taken the id since.
    """
    owners = {verdict.job.id: verdict.job.tenant for verdict in cancels}
    opened = {
        event_id: run for event_id, run in runs.lock_of_jobs(cursor, owners.keys()).items()
        if run.occurrence is not None and run.occurrence.tenant == owners[run.occurrence.job_id]
    }
    after = {event_id: cancel_run(run, now) for event_id, run in opened.items()}
    runs.save(cursor, opened, {}, after)
    wake_for_runs(cursor, opened, after, now)
    ended = {run.occurrence.job_id for event_id, run in after.items()
             if run.occurrence is not None and run is not opened[event_id]}
    for verdict in cancels:
        if verdict.job.id in ended:  # also where every occurrence of the job was out already
            ended.discard(verdict.job.id)
            verdict.status = "cancelled"


def _cancel_delayed(cursor: Cursor, cancels: Sequence[tuple[Incoming, CommandOutcome]]) -> None:
    """Cancel delayed messages: an id may be one's message_id, and then it is no job's, as far as we know."""
    ids = {verdict.job.id for _, verdict in cancels}
    undefined = {verdict.job.id for _, verdict in cancels if verdict.job.definition is None}
    if jobs := ids - undefined:
        # Look first: a DELETE waits for a lock on the table even if it deletes nothing.
        ids = undefined | delayed.find_stored(cursor, jobs).keys()
    withdrawn = delayed.cancel(cursor, ids, undefined) if ids else set()
    entries = []
    for incoming, verdict in cancels:
        if verdict.job.id in withdrawn:
            verdict.status = "cancelled"
            entries.append(delayed_entry(incoming))
    if entries:
        audit.write_entries(cursor, entries)


def _execute_retries(
    cursor: Cursor, batch: Sequence[Incoming], soon: timedelta, attendant: TransactionHooks
) -> list[MessageOutcome]:
    now = database_time(cursor)
    ids = {incoming.about for incoming in batch}
    opened = runs.lock(cursor, ids)
    finished = runs.lock_finished(cursor, ids - opened.keys())
    if missing := ids - opened.keys() - finished.keys():
        opened |= runs.lock(cursor, missing)  # the same retry through another consumer may have moved one
    known = opened | finished
    attendant.runs_locked(known)
    after = dict(known)
    verdicts: list[MessageOutcome] = [decide_retry(after, incoming, now) for incoming in batch]
    keep_unannounced_ends(opened, after)
    runs.save(cursor, opened, finished, after)
    if entries := run_entries(batch, verdicts, known):
        audit.write_entries(cursor, entries)
    wake_for_runs(cursor, known, after, now + soon)
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
