"""The messages of a run: its event, attempt after attempt, and how it ended."""

import json
from datetime import timedelta
from functools import lru_cache

from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import DEFAULT_TENANT
from scheduler.domain.runs.run import Run

_written = lru_cache(maxsize=64)(rfc3339)  # most of a batch go out at one moment


def due_body(run: Run) -> bytes:
    """Write the ScheduleDue of the current attempt; the payload goes in as the very text that the host sent."""
    occurrence = run.occurrence
    assert occurrence is not None  # noqa: S101 - only what is known is emitted
    assert run.emitted_at is not None  # noqa: S101 - as above
    policy = occurrence.policy
    limits = "" if occurrence.work is None else f',"timeout":{policy.timeout},"max_delay":{policy.max_delay}'
    # As it was when this attempt went out: the dead letter is that very event, whatever became of it since.
    deadline = run.emitted_at + timedelta(seconds=policy.start_timeout)
    return (
        f'{occurrence.event[:-1]},"emitted_at":"{_written(run.emitted_at)}","run":{{"attempt":{run.attempt},'
        f'"attempts_left":{run.attempts_left},"max_attempts":{policy.max_attempts},'
        f'"deadline":"{_written(deadline)}"{limits}}}}}'
    ).encode()


def finished_body(run: Run) -> bytes:
    """Write the ScheduleFinished; its times, error and output are those of the attempt that ended it."""
    occurrence = run.occurrence
    assert occurrence is not None  # noqa: S101 - only what is known ends
    assert run.finished_at is not None  # noqa: S101 - it has ended
    finished_at = run.finished_at if run.ended_by is None else run.ended_by.finished_at
    started = "null" if run.started_at is None else f'"{rfc3339(run.started_at)}"'
    tenant = "" if occurrence.tenant == DEFAULT_TENANT else f'"tenant":"{occurrence.tenant}",'
    cut = ',"output_cut":true' if run.output_cut else ""
    return (
        f'{{"event_id":"{run.event_id}","job_id":"{occurrence.job_id}","job_type":{json.dumps(occurrence.job_type)},'
        f'{tenant}"due_at":"{rfc3339(occurrence.due_at)}","status":"{run.status.value}","attempts":{run.attempt},'
        f'"started_at":{started},"finished_at":"{rfc3339(finished_at)}","error":{json.dumps(run.error)},'
        f'"output":{run.output or "null"}{cut}}}'
    ).encode()
