"""Commands become rows: a batch is one transaction."""

import io
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg2
import psycopg2.extensions
from psycopg2 import errors

from scheduler.domain.definition import Incoming, define
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.domain.job import Definition, Job, JobStatus, Outcome, apply
from scheduler.domain.missed import OnMissed
from scheduler.domain.recurrence import Spec
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, Contended, TooDeep, roll_back, transaction, translated
from scheduler.resources import query

log = get_logger(__name__)

Cursor = psycopg2.extensions.cursor
WAKEUP = "scheduler_wakeup"
UNSTORABLE = "Postgres cannot store it"
_TRIES = 20
# What a request brings; of a job that has only just been asked for, all else is as the table's defaults say.
_ASKED = (
    "id", "on_missed", "requested_at", "next_run_at", "starts_at", "max_lateness", "every", "dtstart", "ends_at",
    "job_type", "payload", "timezone", "rrule", "cron", "correlation_id", "traceparent", "tracestate",
)  # fmt: skip
_SINCE = (
    "status", "occurrence", "retries", "triggers", "retry_at", "trigger_at", "triggered_at",
    "cancelled_at", "paused_at", "resumed_at", "finished_at",
)  # fmt: skip
_TEXTS = _ASKED.index("job_type")  # from here on it is the host's own text
_NULL = r"\N"

Row = tuple[str | None, ...]
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
        except (psycopg2.DataError, psycopg2.IntegrityError, TooDeep) as error:
            # Some value that Postgres refuses although it passed validation: find whose it is.
            if len(batch) > 1:
                return [answer for incoming in batch for answer in store(connection, [incoming], soon)]
            line = " ".join(str(error).split())[:300]
            return [Rejected([Problem("body", f"{UNSTORABLE}: {line}")])]
    raise Unavailable("Postgres: too many consumers store the same jobs at once")


def check(connection: Connection) -> None:
    """Raise Unavailable where a job could not be stored: no table, no right to, or a standby that only reads."""
    with translated(), connection.cursor() as cursor:
        try:
            cursor.execute("INSERT INTO jobs (id) VALUES (%s)", (str(uuid4()),))
        finally:
            roll_back(connection)


def _store(cursor: Cursor, batch: Sequence[Incoming], soon: timedelta) -> list[Answer]:
    cursor.execute("SELECT now()")
    now: datetime = cursor.fetchone()[0]  # type: ignore[index]
    started = time.monotonic()
    ids = [incoming.job_id for incoming in batch]
    known = _locked(cursor, ids)
    jobs = dict(known)
    answers: list[Answer] = []
    for index, (job_id, incoming) in enumerate(zip(ids, batch, strict=True)):
        # Commands of one batch without issued_at keep their order: a microsecond each.
        answer = _applied(jobs.get(job_id), incoming, now + timedelta(microseconds=index))
        answers.append(answer)
        if isinstance(answer, Outcome):
            jobs[job_id] = answer.job
    updated: list[Row] = []
    fresh: list[Row] = []
    others: list[Row] = []
    soonest = now + soon + timedelta(seconds=time.monotonic() - started)  # others may have held the rows for long
    due_soon = False
    for job_id, job in jobs.items():
        before = known.get(job_id)
        if job is before:
            pass
        elif before is not None:
            updated.append(_asked(job_id, job) + _since(job, now))
        elif job.fresh:
            fresh.append(_asked(job_id, job))
        else:
            others.append(_asked(job_id, job) + _since(job, now))
        # Of those that stayed as they were too: a producer that came by while they were locked has skipped them.
        wake_at = job.wake_at
        if wake_at is not None and wake_at <= soonest and job.status is JobStatus.PENDING:
            soonest, due_soon = wake_at, True
    _update(cursor, updated)
    _insert(cursor, _ASKED, fresh)
    _insert(cursor, _ASKED + _SINCE, others)
    if due_soon:
        cursor.execute("SELECT pg_notify(%s, %s)", (WAKEUP, soonest.isoformat()))
    return answers


def _applied(job: Job | None, incoming: Incoming, now: datetime) -> Answer:
    command = incoming.command
    try:
        definition = define(incoming, now)
        return apply(job, command, definition, now)
    except Rejected as verdict:
        return verdict.kept()
    except Exception:
        # As in the consumer: what nobody thought of concerns this one command.
        log.exception("command cannot be applied", job_id=str(command.id),
                      do="report it, with the message in scheduler_dead")
        return Rejected([Problem("body", "cannot be applied: an error of the scheduler's own, see its log")])


def _locked(cursor: Cursor, ids: list[str]) -> dict[str, Job]:
    # As one literal: an array of so many parts takes longer to read than to look up.
    cursor.execute(query("lock_jobs"), {"ids": f"{{{','.join(ids)}}}"})
    names = [column.name for column in cursor.description or ()]
    return {row[0]: _job(dict(zip(names, row, strict=True))) for row in cursor}


def _update(cursor: Cursor, rows: list[Row]) -> None:
    if rows:
        saved = json.dumps([dict(zip(_ASKED + _SINCE, row, strict=True)) for row in rows])
        cursor.execute(query("update_jobs"), {"jobs": saved})


def _insert(cursor: Cursor, columns: Sequence[str], rows: list[Row]) -> None:
    """Add the jobs by COPY: half of what an INSERT costs."""
    if not rows:
        return
    rows.sort()  # by id, so that two consumers never deadlock
    text = "".join(map(_line, rows))
    try:
        cursor.copy_expert(f"COPY jobs ({', '.join(columns)}) FROM STDIN", io.StringIO(text), size=1 << 20)
    except errors.UniqueViolation as error:
        raise Contended("Postgres: another consumer created one of these jobs meanwhile") from error


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
        id=UUID(row["id"]), status=JobStatus(row["status"]), definition=definition,
        triggers=tuple(row["triggers"]),
        **{name: row[name] for name in (
            "next_run_at", "occurrence", "retries", "retry_at", "trigger_at", "triggered_at",
            "requested_at", "cancelled_at", "paused_at", "resumed_at",
        )},
    )


def _asked(job_id: str, job: Job) -> Row:
    """Return the columns of _ASKED as text."""
    requested, following, definition = job.requested_at, job.next_run_at, job.definition
    requested_at = None if requested is None else requested.isoformat()
    next_run_at = None if following is None else following.isoformat()
    if definition is None:
        nothing = (None,) * 5
        return (job_id, "latest", requested_at, next_run_at, *nothing, None, "{}", "UTC", *nothing)
    spec = definition.spec
    start = spec.starts_at
    if spec.one_shot:
        rules: Row = (None, None, None)
    else:
        rules = (_interval(spec.every), _text(spec.dtstart), _text(spec.ends_at))
    return (
        job_id, definition.on_missed, requested_at, next_run_at,
        next_run_at if start is following else start.isoformat(),
        _interval(definition.max_lateness), *rules,
        definition.job_type, definition.payload, spec.timezone, spec.rrule, spec.cron,
        definition.correlation_id, definition.traceparent, definition.tracestate,
    )


def _since(job: Job, now: datetime) -> Row:
    """Return the columns of _SINCE as text."""
    finished = None if job.status in (JobStatus.PENDING, JobStatus.PAUSED) else now
    triggers = ",".join([each.isoformat() for each in job.triggers])
    return (
        job.status, str(job.occurrence), str(job.retries), f"{{{triggers}}}",
        _text(job.retry_at), _text(job.trigger_at), _text(job.triggered_at), _text(job.cancelled_at),
        _text(job.paused_at), _text(job.resumed_at), _text(finished),
    )


def _line(row: Row) -> str:
    """Write a row in COPY's text format."""
    return "\t".join([
        *[_NULL if each is None else each for each in row[:_TEXTS]],
        *[_NULL if each is None else _escaped(each) for each in row[_TEXTS:]],
    ]) + "\n"


def _escaped(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _interval(span: timedelta | None) -> str | None:
    """Write a span as seconds, never as days: a day would be 23 or 25 hours in some zones."""
    return None if span is None else f"{span // timedelta(microseconds=1)} microseconds"
