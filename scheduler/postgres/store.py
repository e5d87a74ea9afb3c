"""Commands become rows: a batch is one transaction."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg2
import psycopg2.extensions

from scheduler.domain.definition import Incoming, define
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.domain.job import Definition, Job, JobStatus, Outcome, apply
from scheduler.domain.missed import OnMissed
from scheduler.domain.recurrence import Spec
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, Contended, transaction
from scheduler.resources import query

log = get_logger(__name__)

Cursor = psycopg2.extensions.cursor
WAKEUP = "scheduler_wakeup"
UNSTORABLE = "Postgres cannot store it"
_TRIES = 20


Answer = Outcome | Rejected


def store(connection: Connection, batch: Sequence[Incoming], soon: timedelta) -> list[Answer]:
    """Apply the commands in one transaction and return what became of each, in order.

    Producers look again by themselves; they are woken only for what falls due sooner than `soon` from now.
    """
    for _ in range(_TRIES):
        try:
            with transaction(connection) as cursor:
                return _store(cursor, batch, soon)
        except Contended:
            # Another consumer created or changed one of these jobs at the same moment; now they are all
            # there, and the next try locks them in order.
            continue
        except (psycopg2.DataError, psycopg2.IntegrityError) as error:
            # Some value that Postgres refuses although it passed validation: find whose it is.
            if len(batch) > 1:
                return [answer for incoming in batch for answer in store(connection, [incoming], soon)]
            line = " ".join(str(error).split())[:300]
            return [Rejected([Problem("body", f"{UNSTORABLE}: {line}")])]
    raise Unavailable("Postgres: too many consumers store the same jobs at once")


def _store(cursor: Cursor, batch: Sequence[Incoming], soon: timedelta) -> list[Answer]:
    cursor.execute("SELECT now()")
    now: datetime = cursor.fetchone()[0]  # type: ignore[index]
    known = _locked(cursor, {incoming.command.id for incoming in batch})
    jobs = dict(known)
    answers: list[Answer] = []
    for index, incoming in enumerate(batch):
        # Commands of one batch without issued_at keep their order: a microsecond each.
        answer = _applied(jobs, incoming, now + timedelta(microseconds=index))
        answers.append(answer)
        if isinstance(answer, Outcome):
            jobs[incoming.command.id] = answer.job
    changed = [job for job in jobs.values() if job is not known.get(job.id)]
    if not _saved(cursor, changed):
        raise Contended("a job was created by another consumer meanwhile")
    wakes = [job.wake_at for job in changed if job.wake_at and job.status is JobStatus.PENDING]
    soonest = min(wakes, default=None)
    if soonest is not None and soonest <= now + soon:
        cursor.execute("SELECT pg_notify(%s, %s)", (WAKEUP, soonest.isoformat()))
    return answers


def _applied(jobs: dict[UUID, Job], incoming: Incoming, now: datetime) -> Answer:
    command = incoming.command
    try:
        definition = define(incoming, now)
        return apply(jobs.get(command.id) or Job(command.id), command, definition, now)
    except Rejected as verdict:
        return verdict
    except Exception:
        # As in the consumer: what nobody thought of concerns this one command.
        log.exception("command cannot be applied", job_id=str(command.id),
                      do="report it, with the message in scheduler_dead")
        return Rejected([Problem("body", "cannot be applied: an error of the scheduler's own, see its log")])


def _locked(cursor: Cursor, ids: set[UUID]) -> dict[UUID, Job]:
    cursor.execute(query("lock_jobs"), {"ids": [str(each) for each in ids]})
    names = [column.name for column in cursor.description or ()]
    return {job.id: job for job in (_job(dict(zip(names, row, strict=True))) for row in cursor)}


def _saved(cursor: Cursor, jobs: list[Job]) -> bool:
    """Write the jobs; False when another consumer created or changed one of them since they were read."""
    if not jobs:
        return True
    cursor.execute(query("save_jobs"), {"jobs": json.dumps([_row(job) for job in jobs])})
    return cursor.rowcount == len(jobs)


def _job(row: dict[str, Any]) -> Job:
    definition = None
    if row["job_type"] is not None:
        starts_at = row["starts_at"] or row["next_run_at"] or row["requested_at"] or datetime.now(UTC)
        definition = Definition(
            job_type=row["job_type"], payload=row["payload"], correlation_id=row["correlation_id"],
            traceparent=row["traceparent"], tracestate=row["tracestate"],
            spec=Spec(rrule=row["rrule"], cron=row["cron"], every=row["every"], timezone=row["timezone"],
                      dtstart=row["dtstart"], starts_at=starts_at, ends_at=row["ends_at"]),
            on_missed=OnMissed(row["on_missed"]), max_lateness=row["max_lateness"],
        )
    return Job(
        id=UUID(row["id"]), version=row["version"], status=JobStatus(row["status"]), definition=definition,
        triggers=tuple(row["triggers"]),
        **{name: row[name] for name in (
            "next_run_at", "occurrence", "retries", "retry_at", "trigger_at", "triggered_at",
            "requested_at", "cancelled_at", "paused_at", "resumed_at",
        )},
    )


def _row(job: Job) -> dict[str, Any]:
    """Return the columns that are not empty: the others cost nobody anything."""
    row: dict[str, Any] = {
        "id": str(job.id), "version": job.version + 1, "status": job.status.value,
        "occurrence": job.occurrence, "retries": job.retries,
        "triggers": [each.isoformat() for each in job.triggers] if job.triggers else [],
        "payload": "{}", "timezone": "UTC", "on_missed": "latest",
    }
    for name, moment in (
        ("next_run_at", job.next_run_at), ("retry_at", job.retry_at), ("trigger_at", job.trigger_at),
        ("triggered_at", job.triggered_at), ("requested_at", job.requested_at),
        ("cancelled_at", job.cancelled_at), ("paused_at", job.paused_at), ("resumed_at", job.resumed_at),
    ):
        if moment is not None:
            row[name] = moment.isoformat()
    if job.definition is not None:
        _add_definition(row, job.definition)
    return row


def _add_definition(row: dict[str, Any], definition: Definition) -> None:
    spec = definition.spec
    row["job_type"], row["payload"] = definition.job_type, definition.payload
    row["timezone"], row["on_missed"] = spec.timezone, definition.on_missed.value
    row["starts_at"] = spec.starts_at.isoformat()
    if definition.correlation_id is not None:
        row["correlation_id"] = definition.correlation_id
    if definition.traceparent is not None or definition.tracestate is not None:
        row |= {"traceparent": definition.traceparent, "tracestate": definition.tracestate}
    if not spec.one_shot:
        row |= {"rrule": spec.rrule, "cron": spec.cron, "every": _interval(spec.every),
                "dtstart": _text(spec.dtstart), "ends_at": _text(spec.ends_at)}
    if definition.max_lateness is not None:
        row["max_lateness"] = _interval(definition.max_lateness)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _interval(span: timedelta | None) -> str | None:
    """Write a span as seconds, never as days: a day would be 23 or 25 hours in some zones."""
    return None if span is None else f"{span // timedelta(microseconds=1)} microseconds"
