"""Undo a bulk action, for each job that has not changed since."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.bulk_commands import BATCH, BulkProgress, Step, incoming_verb
from scheduler.commands.decide_commands import MessageOutcome
from scheduler.domain.caller import Caller
from scheduler.domain.instants import parse_instant, rfc3339
from scheduler.domain.jobs.job import CommandOutcome, Job, JobStatus
from scheduler.domain.jobs.reinstate import reinstated
from scheduler.domain.messages import BULK_VERBS
from scheduler.postgres.audit import AuditEntry, write_entries
from scheduler.postgres.audit_batches import BatchEntry, list_batch
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.jobs.due import KIND
from scheduler.postgres.jobs.store import lock, save
from scheduler.postgres.locks import RowKeys, find_locked
from scheduler.postgres.wakeup import wake_producers

REINSTATE = "reinstate"
_CHANGED = ("scheduled", "cancelled")
# By the action in the audit; a backfill requests jobs.
UNDO = {verb: model.undo for verb, model in BULK_VERBS.items() if model.undo} | {
    "cancel": REINSTATE, "request": "cancel", REINSTATE: "cancel"}


@dataclass(frozen=True, slots=True)
class Reinstatement:
    """An undo of the cancel of one job."""

    about: str
    entry: BatchEntry


def undo_step(batch: str, tenant: str | None, caller: Caller, wake_horizon: timedelta) -> Step:
    """Return a function that undoes a part of a bulk action; call it until it is done."""

    def step(connection: Connection, progress: BulkProgress) -> BulkProgress:
        entries = list_batch(connection, batch, tenant, BATCH, progress.place)
        connection.rollback()  # end the read before the change
        standing = [entry for entry in entries if entry.standing and entry.kind == "job"]
        changed = _undo_commands(connection, standing, caller, wake_horizon)
        cancels = [entry for entry in standing if UNDO.get(entry.action) == REINSTATE]
        changed += _reinstate(connection, cancels, caller, wake_horizon)
        place = entries[-1].place if entries else progress.place
        return BulkProgress(progress.matched + changed, place=place, done=len(entries) < BATCH)

    return step


def _undo_commands(
    connection: Connection, entries: Sequence[BatchEntry], caller: Caller, wake_horizon: timedelta
) -> int:
    commands = [
        incoming_verb(verb, entry.thing, entry.tenant, caller)
        for entry in entries if (verb := UNDO.get(entry.action)) in BULK_VERBS and verb is not None
    ]
    outcomes = apply_commands(connection, commands, wake_horizon) if commands else []
    return sum(isinstance(outcome, CommandOutcome) and outcome.status in _CHANGED for outcome in outcomes)


def _reinstate(
    connection: Connection, entries: Sequence[BatchEntry], caller: Caller, wake_horizon: timedelta
) -> int:
    if not entries:
        return 0
    outcomes = run_in_transaction(
        connection, [Reinstatement(entry.thing, entry) for entry in entries],
        partial(_execute, caller=caller, wake_horizon=wake_horizon),
        lambda cursor, part: find_locked(cursor, RowKeys("jobs", {cancel.about for cancel in part})),
    )
    return outcomes.count("recorded")


def _execute(
    cursor: Cursor, part: Sequence[Reinstatement], caller: Caller, wake_horizon: timedelta
) -> list[MessageOutcome]:
    now = database_time(cursor)
    stored = lock(cursor, [cancel.about for cancel in part])
    entries = {cancel.about: cancel.entry for cancel in part}
    after = {
        job_id: reinstated(job, *_before(entries[job_id]), now)
        for job_id, job in stored.items() if job.tenant == entries[job_id].tenant
    }
    changed = {job_id: job for job_id, job in after.items() if job is not stored[job_id]}
    save(cursor, stored, changed, dict.fromkeys(changed, caller))
    if changed:
        write_entries(cursor, [_entry(caller, job) for job in changed.values()])
    due = min((job.wake_at for job in changed.values() if job.wake_at is not None), default=None)
    if due is not None and due <= now + wake_horizon:
        wake_producers(cursor, KIND, due)
    return ["recorded" if cancel.about in changed else "unchanged" for cancel in part]


def _entry(caller: Caller, job: Job) -> AuditEntry:
    next_run_at = None if job.next_run_at is None else rfc3339(job.next_run_at)
    after = {"status": job.status.value, "next_run_at": next_run_at}
    return AuditEntry(caller, REINSTATE, "job", job.id, job.tenant, '{"status": "cancelled"}', json.dumps(after))


def _before(entry: BatchEntry) -> tuple[JobStatus, Any]:
    """Return the status and the next run before a cancel."""
    before = entry.before or {}
    next_run_at = before.get("next_run_at")
    return JobStatus(before.get("status", "pending")), None if next_run_at is None else parse_instant(next_run_at)
