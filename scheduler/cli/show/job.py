"""`scheduler job show`: the state of a job, and the reasons why its last event was late."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from scheduler.cli.terminal import from_now, plain, span
from scheduler.cli.top import ON_TIME_SECONDS
from scheduler.cli.verb_helpers import open_connection
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.targets.target import mask_target_text
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.postgres.jobs.lists import find_job
from scheduler.postgres.jobs.report import JobReport, report
from scheduler.settings import Settings
from scheduler.views.base import as_json as json_text
from scheduler.views.base import in_ascii
from scheduler.views.jobs import job_view

_ON_TIME = timedelta(seconds=ON_TIME_SECONDS)
_MAX_BACKOFF = timedelta(minutes=1)  # after a rejection by the broker
_MAX_REASON = 500
_MAX_PAYLOAD = 2000
_MAX_TARGET = 2000


def run(settings: Settings, job_id: UUID, *, as_json: bool) -> bool:
    """Print the job; return whether it exists."""
    job = report(settings.database_url, job_id)
    if job is not None and job.job_type is None and job.requested_at is not None:
        return False  # purged
    if job is not None:
        print(_whole_job(settings, job) if as_json else "\n".join(explain(job)))
    return job is not None


def _whole_job(settings: Settings, job: JobReport) -> str:
    """Return the JSON of the API, with the values of the report that it lacks."""
    values = stored_values(job)
    with open_connection(settings, "job show") as connection:
        row = find_job(connection, job.id)
    if row is None:  # not requested yet
        return json.dumps(values)
    view = job_view(row)
    others = {name: value for name, value in values.items() if not hasattr(view, name)}
    return f"{in_ascii(json_text(view))[:-1]}, {json.dumps(others)[1:]}"


def stored_values(job: JobReport) -> dict[str, Any]:
    """Return the stored values for JSON: instants in RFC 3339, `every` in seconds."""
    return {name: _json(value) for name, value in asdict(job).items() if name not in ("payload", "target")}


def explain(job: JobReport) -> list[str]:
    """Return a table of the job's fields, then sentences on its state and its last event."""
    facts = {
        "job": job.id,
        "type": plain(job.job_type) if job.job_type is not None else "unknown",
        **({} if job.name is None else {"name": plain(job.name)}),
        **({} if job.description is None else {"description": plain(job.description.replace(chr(10), " "))}),
        **({} if job.tenant == DEFAULT_TENANT else {"tenant": plain(job.tenant)}),
        **({} if job.route is None else {"route": plain(job.route)}),
        "payload": plain(job.payload, _MAX_PAYLOAD),
        **({} if job.target is None else {"target": plain(mask_target_text(job.target), _MAX_TARGET)}),
        "schedule": _schedule(job),
        "requested": rfc3339(job.requested_at) if job.requested_at else "not yet",
        "status": str(job.status),
        "emitted": "1 event" if job.occurrence == 1 else f"{job.occurrence} events",
    }
    width = max(map(len, facts)) + 2
    table = [f"{name:<{width}}{value}" for name, value in facts.items()]
    return [*table, "", *_describe_state(job), "", *_describe_last_event(job), *_describe_other_rejection(job)]


def _schedule(job: JobReport) -> str:
    if job.manual:
        return "none: it runs only when it is triggered"
    if job.every is not None:
        return f"every {span(job.every)}"
    rule = job.rrule if job.rrule is not None else job.cron
    if rule is not None:
        return f"{plain(rule.replace(chr(10), ' '))} in {plain(job.timezone)}"
    return f"once, at {rfc3339(job.starts_at)}" if job.starts_at else "once"


def _describe_state(job: JobReport) -> Iterator[str]:
    """Describe the job's state and its next step."""
    match job.status:
        case JobStatus.AWAITING:
            yield "A pause, resume or trigger arrived before the job's request; it runs once that arrives."
            if not job.consumers:
                yield "No consumer is running: the request may be queued in scheduler_inbox."
        case JobStatus.CANCELLED:
            by = f"by a cancel issued{_at(job.cancelled_at)}"
            yield f"Cancelled{_at(job.finished_at)} {by}; no more events are emitted."
            if job.requested_at is None:
                yield "Its request has not arrived; a request issued before the cancel is ignored."
        case JobStatus.DONE:
            yield f"Done{_at(job.finished_at)}: every occurrence was emitted or skipped."
        case JobStatus.PAUSED:
            yield f"Paused by a pause issued{_at(job.paused_at)}; no events are emitted until it is resumed."
            if job.next_run_at is not None:
                verb = "is" if job.next_run_at > job.now else "was due"
                yield f"Its next run {verb} {rfc3339(job.next_run_at)}, {from_now(job.next_run_at, job.now)}."
            yield from _describe_triggers(job)
        case JobStatus.PENDING:
            yield from _describe_next(job)
            yield from _describe_triggers(job)
            if not job.producers:
                yield "No producer is running: no events are emitted until one starts."


def _describe_next(job: JobReport) -> Iterator[str]:
    """Describe when a pending job is due, or what delays it."""
    wake_at = job.wake_at
    if wake_at is None:
        yield ("It has no schedule: it runs when it is triggered." if job.manual else
               "It has no next run; a new request or a trigger can start it.")
        return
    if job.retry_at is not None:
        yield _current_rejection(job)
    if wake_at > job.now:
        what = "It is retried at" if job.retry_at is not None else "Its next run is"
        yield f"{what} {rfc3339(wake_at)}, {from_now(wake_at, job.now)}."
        return
    what = "Its retry has been due" if job.retry_at is not None else "Due"
    since = f"{what} since {rfc3339(wake_at)}, for {span(job.now - wake_at)}"
    if job.in_hand:
        yield f"{since}; a replica is processing it."
    else:
        yield f"{since}; no producer has claimed it."
        if job.producers:
            running = "1 producer is" if job.producers == 1 else f"{job.producers} producers are"
            yield f"{running} running: check /readyz of each, and the backlog in `scheduler top`."


def _current_rejection(job: JobReport) -> str:
    due = f" due {rfc3339(job.due_at)}" if job.due_at else ""
    if job.last_problem is None:
        return f"The broker rejected its event{due} {_times(job.retries)}; the reason is unknown."
    return f"The broker rejected its event{due} {_rejections(job, job.retries)}."


def _describe_triggers(job: JobReport) -> Iterator[str]:
    if job.triggers:
        count = "1 trigger is" if len(job.triggers) == 1 else f"{len(job.triggers)} triggers are"
        yield f"{count} pending, the oldest issued at {rfc3339(job.triggers[0])}."


def _describe_last_event(job: JobReport) -> Iterator[str]:
    """Describe when the last event was due and emitted, and why it was late."""
    due, emitted, confirmed = job.last_due_at, job.last_emitted_at, job.last_confirmed_at
    if due is None or emitted is None or confirmed is None:
        yield ("It has emitted no event yet." if not job.occurrence else
               "The time of its last event is unknown: an older version emitted it.")
        return
    yield (f"The last event was due {rfc3339(due)}, emitted {span(emitted - due)} later, "
           f"confirmed {span(confirmed - emitted)} after that.")
    if confirmed - due <= _ON_TIME:
        yield "That was on time."
        return
    took = f"the broker took {span(confirmed - emitted)} to confirm it."
    if emitted - due <= _ON_TIME:
        yield f"It was emitted on time, but {took}"
        return
    yield from _explain_delay(job, due, emitted)
    if confirmed - emitted > _ON_TIME:
        yield f"Then {took}"


def _explain_delay(job: JobReport, due: datetime, emitted: datetime) -> Iterator[str]:
    """Explain a late event: late commands, rejections by the broker, then other possible causes."""
    ready = due
    for moment, cause in _late_commands(job, due):
        if due < moment <= emitted:
            ready = max(ready, moment)
            yield cause
    if job.triggered_at == due:
        yield "It was a trigger: due when it was issued, emitted after a consumer stored it."
    rejected = _rejection_caused_delay(job)
    if rejected and job.last_problem_due_at == due:
        yield f"It was late: the broker rejected it {_rejections(job, job.last_refusals)}."
    elif rejected:
        yield f"It was late: it waited for {_rejected_event(job)}."
    if rejected:
        ready = max(ready, (job.last_problem_at or emitted) + _MAX_BACKOFF)
    if emitted - ready > _ON_TIME:
        start = "After that," if rejected else "It was late without a rejection:"
        yield (f"{start} no producer claimed it in time. No producer was running, Postgres or RabbitMQ was "
               "unavailable, or the backlog was too large.")


def _late_commands(job: JobReport, due: datetime) -> Iterator[tuple[datetime, str]]:
    """Yield the times before which the job could not run, each with its explanation."""
    created, requested = job.created_at, job.requested_at
    if requested is not None and requested > due:
        when = rfc3339(requested) + (f" and stored at {rfc3339(created)}" if created > requested else "")
        yield max(created, requested), f"It was already due when it was requested at {when}."
    else:
        yield created, (f"It was already due when it was stored at {rfc3339(created)}: "
                        "its request waited for a consumer.")
    if job.resumed_at is not None and job.paused_at is not None:
        yield job.resumed_at, f"It was already due when it was resumed at {rfc3339(job.resumed_at)}."


def _rejection_caused_delay(job: JobReport) -> bool:
    """Return whether the latest rejection delayed the last event: it was for that event or the one just before."""
    due, emitted, rejected_due = job.last_due_at, job.last_emitted_at, job.last_problem_due_at
    if due is None or emitted is None or rejected_due is None or emitted - due <= _ON_TIME:
        return False
    at = job.last_problem_at or rejected_due
    return rejected_due == due or (rejected_due < due and at <= emitted <= at + _MAX_BACKOFF)


def _describe_other_rejection(job: JobReport) -> Iterator[str]:
    """Describe the latest rejection if it is neither current nor the cause of the last delay."""
    if job.last_problem is not None and job.retry_at is None and not _rejection_caused_delay(job):
        yield f"The latest rejection was for {_rejected_event(job)}."


def _rejected_event(job: JobReport) -> str:
    due = job.last_problem_due_at
    return f"the event{f' due {rfc3339(due)}' if due else ''}, rejected {_rejections(job, job.last_refusals)}"


def _rejections(job: JobReport, count: int | None) -> str:
    """Return the number of rejections, the time of the last one and its reason."""
    reason = plain(job.last_problem or "unknown reason", _MAX_REASON).rstrip(".")
    last = "" if count == 1 else " last"
    return f"{_times(count)},{last}{_at(job.last_problem_at)}: {reason}"


def _times(count: int | None) -> str:
    if not count:
        return "at least once"
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _at(moment: datetime | None) -> str:
    return f" at {rfc3339(moment)}" if moment is not None else " at an unknown time"


def _json(value: Any) -> Any:
    match value:
        case datetime():
            return rfc3339(value)
        case timedelta():
            return value.total_seconds()
        case tuple() | list():
            return [_json(item) for item in value]
    return value
