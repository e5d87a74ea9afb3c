"""`scheduler job show`: where one job stands, and why its last event was late, in words."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from scheduler.cli.terminal import from_now, plain, span
from scheduler.cli.top import ON_TIME_SECONDS
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.job import JobStatus
from scheduler.postgres.jobs.report import JobReport, report
from scheduler.settings import Settings

_ON_TIME = timedelta(seconds=ON_TIME_SECONDS)
_LONGEST_DELAY = timedelta(minutes=1)  # between a refusal and the next try
_LONGEST_REASON = 500


def run(settings: Settings, job_id: UUID, *, as_json: bool) -> bool:
    """Print what is known of the job; return whether there is one."""
    known = report(settings.database_url, job_id)
    if known is not None:
        print(json.dumps(stored_values(known)) if as_json else "\n".join(explain(known)))
    return known is not None


def stored_values(job: JobReport) -> dict[str, Any]:
    """Return the stored values as JSON has them: instants in RFC 3339, `every` in seconds."""
    return {name: _json(value) for name, value in asdict(job).items()}


def explain(job: JobReport) -> list[str]:
    """Return a table of what the job is, then sentences: where it stands, and how its last event went."""
    facts = {
        "job": job.id,
        "type": plain(job.job_type) if job.job_type is not None else "not known yet",
        "schedule": _schedule(job),
        "requested": rfc3339(job.requested_at) if job.requested_at else "not yet",
        "status": str(job.status),
        "emitted": "1 event" if job.occurrence == 1 else f"{job.occurrence} events",
    }
    table = [f"{name:<11}{value}" for name, value in facts.items()]
    return [*table, "", *_standing(job), "", *_last_event(job), *_other_problem(job)]


def _schedule(job: JobReport) -> str:
    if job.every is not None:
        return f"every {span(job.every)}"
    rule = job.rrule if job.rrule is not None else job.cron
    if rule is not None:
        return f"{plain(rule.replace(chr(10), ' '))} in {plain(job.timezone)}"
    return f"once, at {rfc3339(job.starts_at)}" if job.starts_at else "once"


def _standing(job: JobReport) -> Iterator[str]:
    """Say where the job stands and what happens next."""
    match job.status:
        case JobStatus.AWAITING:
            yield "A pause, resume or trigger came before its request: there is nothing to run until that comes."
            if not job.consumers:
                yield "No consumer runs: its request may wait in scheduler_inbox."
        case JobStatus.CANCELLED:
            by = f"by a cancel issued{_at(job.cancelled_at)}"
            yield f"Cancelled{_at(job.finished_at)}, {by}: nothing more goes out."
            if job.requested_at is None:
                yield "Its request has not come; one that was issued before the cancel will change nothing."
        case JobStatus.DONE:
            yield f"Done{_at(job.finished_at)}: every occurrence was emitted or passed over."
        case JobStatus.PAUSED:
            yield f"Paused, by a pause issued{_at(job.paused_at)}: nothing goes out until it is resumed."
            if job.next_run_at is not None:
                verb = "is" if job.next_run_at > job.now else "was due"
                yield f"Its next run {verb} {rfc3339(job.next_run_at)}, {from_now(job.next_run_at, job.now)}."
            yield from _triggers(job)
        case JobStatus.PENDING:
            yield from _next(job)
            yield from _triggers(job)
            if not job.producers:
                yield "No producer runs: nothing goes out until one is started."


def _next(job: JobReport) -> Iterator[str]:
    """Say when a pending job goes out, or what holds it up."""
    wake_at = job.wake_at
    if wake_at is None:
        yield "It has no next run: nothing happens until a new request or a trigger comes."
        return
    if job.retry_at is not None:
        yield _refused_now(job)
    if wake_at > job.now:
        what = "It is tried again at" if job.retry_at is not None else "Its next run is"
        yield f"{what} {rfc3339(wake_at)}, {from_now(wake_at, job.now)}."
        return
    what = "Its next try has been due" if job.retry_at is not None else "Due"
    since = f"{what} since {rfc3339(wake_at)}, for {span(job.now - wake_at)}"
    if job.in_hand:
        yield f"{since}: a replica has it in hand at this moment."
    else:
        yield f"{since}: nothing has claimed it."
        if job.producers:
            run = "producer runs" if job.producers == 1 else "producers run"
            yield f"{job.producers} {run}: /readyz of each says what it lacks, scheduler top how much is due."


def _refused_now(job: JobReport) -> str:
    due = f" due {rfc3339(job.due_at)}" if job.due_at else ""
    if job.last_problem is None:
        return f"The broker has refused its event{due}, {_times(job.retries)}; why is not on record."
    return f"The broker has refused its event{due}, {_refused(job, job.retries)}."


def _triggers(job: JobReport) -> Iterator[str]:
    if job.triggers:
        waits = "trigger waits" if len(job.triggers) == 1 else "triggers wait"
        yield f"{len(job.triggers)} {waits} to be emitted, the oldest issued at {rfc3339(job.triggers[0])}."


def _last_event(job: JobReport) -> Iterator[str]:
    """Say when the last event was due and went out, and if that was late, why."""
    due, emitted, confirmed = job.last_due_at, job.last_emitted_at, job.last_confirmed_at
    if due is None or emitted is None or confirmed is None:
        yield ("It has emitted no event yet." if not job.occurrence else
               "When its last event went out is not on record: that was before this was kept.")
        return
    yield (f"The last event was due {rfc3339(due)}, emitted {span(emitted - due)} later, "
           f"confirmed {span(confirmed - emitted)} after that.")
    if confirmed - due <= _ON_TIME:
        yield "That was on time."
        return
    took = f"the broker took {span(confirmed - emitted)} to confirm it."
    if emitted - due <= _ON_TIME:
        yield f"It was emitted in time, but {took}"
        return
    yield from _why_late(job, due, emitted)
    if confirmed - emitted > _ON_TIME:
        yield f"Then {took}"


def _why_late(job: JobReport, due: datetime, emitted: datetime) -> Iterator[str]:
    """Say what held up an event: what came after it was due, what the broker refused, and what else may be."""
    ready = due
    for moment, why in _after_due(job, due):
        if due < moment <= emitted:
            ready = max(ready, moment)
            yield why
    if job.triggered_at == due:
        yield "It was a trigger: due as soon as it was issued, out once a consumer has stored it."
    refused = _refusal_made_late(job)
    if refused and job.last_problem_due_at == due:
        yield f"It was late: the broker refused it {_refused(job, job.last_refusals)}."
    elif refused:
        yield f"It was late: it waited behind {_other_event(job)}."
    if refused:
        ready = max(ready, (job.last_problem_at or emitted) + _LONGEST_DELAY)
    if emitted - ready > _ON_TIME:
        begun = "After that" if refused else "It was late, and no refusal of it is on record:"
        yield (f"{begun} nothing claimed it in time. No producer ran, the database or the broker was away, "
               "or more was due than could go out.")


def _after_due(job: JobReport, due: datetime) -> Iterator[tuple[datetime, str]]:
    """Yield the moments before which the job could not run, and what each means if the event was due already."""
    created, requested = job.created_at, job.requested_at
    if requested is not None and requested > due:
        when = rfc3339(requested) + (f" and stored at {rfc3339(created)}" if created > requested else "")
        yield max(created, requested), f"It was requested only at {when}, when it was due already."
    else:
        yield created, (f"It was stored only at {rfc3339(created)}, when it was due already: "
                        "its request waited for a consumer.")
    if job.resumed_at is not None and job.paused_at is not None:
        yield job.resumed_at, f"It was paused until {rfc3339(job.resumed_at)}, when it was due already."


def _refusal_made_late(job: JobReport) -> bool:
    """Say whether the newest refusal held up the last event: it was of that one, or of one just before it."""
    due, emitted, about = job.last_due_at, job.last_emitted_at, job.last_problem_due_at
    if due is None or emitted is None or about is None or emitted - due <= _ON_TIME:
        return False
    at = job.last_problem_at or about
    return about == due or (about < due and at <= emitted <= at + _LONGEST_DELAY)


def _other_problem(job: JobReport) -> Iterator[str]:
    """Tell the newest refusal where it is neither what goes on now nor why the last event was late."""
    if job.last_problem is not None and job.retry_at is None and not _refusal_made_late(job):
        yield f"The newest refusal was of {_other_event(job)}."


def _other_event(job: JobReport) -> str:
    due = job.last_problem_due_at
    return f"the event{f' due {rfc3339(due)}' if due else ''}, refused {_refused(job, job.last_refusals)}"


def _refused(job: JobReport, count: int | None) -> str:
    """Say how often the broker refused an event, when it did so last, and why."""
    why = plain(job.last_problem or "why is not on record", _LONGEST_REASON).rstrip(".")
    last = "" if count == 1 else " the last time"
    return f"{_times(count)},{last}{_at(job.last_problem_at)}: {why}"


def _times(count: int | None) -> str:
    if not count:
        return "at least once"
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _at(moment: datetime | None) -> str:
    return f" at {rfc3339(moment)}" if moment is not None else " at a time that is not on record"


def _json(value: Any) -> Any:
    match value:
        case datetime():
            return rfc3339(value)
        case timedelta():
            return value.total_seconds()
        case tuple() | list():
            return [_json(each) for each in value]
    return value
