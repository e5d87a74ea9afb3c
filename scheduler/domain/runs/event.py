"""Build the ScheduleDue and ScheduleFinished messages of a run."""

import json
from datetime import timedelta
from functools import lru_cache

from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import DEFAULT_TENANT
from scheduler.domain.runs.run import UNKNOWN_TRIGGER, Origin, Run

_rfc3339 = lru_cache(maxsize=64)(rfc3339)  # most of a batch has the same emitted_at


def due_body(run: Run) -> bytes:
    """Return the ScheduleDue of the current attempt, with the payload's source text."""
    occurrence = run.known_occurrence
    assert run.emitted_at is not None  # noqa: S101 - it was emitted
    policy = occurrence.policy
    limits = "" if occurrence.work is None else f',"timeout":{policy.timeout},"max_delay":{policy.max_delay}'
    # The deadline at the time of emission: a dead letter repeats that event exactly.
    deadline = run.emitted_at + timedelta(seconds=policy.start_timeout)
    return (
        f'{occurrence.event[:-1]},"emitted_at":"{_rfc3339(run.emitted_at)}","run":{{"attempt":{run.attempt},'
        f'"attempts_left":{run.attempts_left},"max_attempts":{policy.max_attempts},'
        f'"deadline":"{_rfc3339(deadline)}"{limits}}}}}'
    ).encode()


def finished_body(run: Run) -> bytes:
    """Return the ScheduleFinished, with the times, error and output of the attempt that ended the run."""
    occurrence = run.known_occurrence
    assert run.finished_at is not None  # noqa: S101 - it has ended
    finished_at = run.finished_at if run.ended_by is None else run.ended_by.finished_at
    started = "null" if run.started_at is None else f'"{rfc3339(run.started_at)}"'
    tenant = "" if occurrence.tenant == DEFAULT_TENANT else f'"tenant":"{occurrence.tenant}",'
    cut = ',"output_cut":true' if run.output_cut else ""
    triggered = ""
    if occurrence.origin is Origin.TRIGGER:
        via, who = run.triggered_by or UNKNOWN_TRIGGER
        triggered = f',"triggered_by":{json.dumps({"via": via, "who": who})}'
    return (
        f'{{"event_id":"{run.event_id}","job_id":"{occurrence.job_id}","job_type":{json.dumps(occurrence.job_type)},'
        f'{tenant}"due_at":"{rfc3339(occurrence.due_at)}","status":"{run.status.value}","attempts":{run.attempt},'
        f'"started_at":{started},"finished_at":"{rfc3339(finished_at)}","error":{json.dumps(run.error)},'
        f'"output":{run.output or "null"}{cut}{triggered}}}'
    ).encode()
