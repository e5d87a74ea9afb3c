"""Views of runs."""

import json
from datetime import timedelta
from typing import Any, ClassVar, Literal, get_args
from uuid import UUID

from pydantic import Field

from scheduler.domain.messages import Instant
from scheduler.domain.runs.run import UNKNOWN_TRIGGER, FinishedAttempt, Origin, Run, RunStatus
from scheduler.views.base import View, as_json, stored

RunState = Literal["delivered", "running", "waiting", "emitted", "succeeded", "dead", "cancelled"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)
OPEN_RUNS: tuple[RunState, ...] = ("delivered", "running", "waiting")


_CUT = Field(default=None, description="`output` was truncated; absent if it was not.")


class AttemptView(View):
    """One finished attempt."""

    optional: ClassVar[frozenset[str]] = frozenset({"output_cut"})

    attempt: int
    outcome: Literal["succeeded", "failed", "timed_out", "lost", "snoozed"]
    worker: str | None
    started_at: Instant | None
    finished_at: Instant
    error: str | None
    output: Any
    output_cut: Literal[True] | None = _CUT


class TriggeredBy(View):
    """Who caused the run, and how."""

    via: Literal["schedule", "api", "amqp", "cli", "console"]
    who: str | None


_BY_SCHEDULE = TriggeredBy(via="schedule", who=None)


class RunView(View):
    """One run."""

    optional: ClassVar[frozenset[str]] = frozenset({"output_cut"})

    event_id: UUID
    job_id: UUID
    job_type: str
    tenant: str
    due_at: Instant
    origin: Literal["schedule", "trigger"]
    status: RunState
    attempt: int
    max_attempts: int | None
    deadline: Instant | None
    retry_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    duration_ms: int | None
    worker: str | None
    error: str | None
    output: Any
    output_cut: Literal[True] | None = _CUT
    progress: float | None
    triggered_by: TriggeredBy | None
    emitted_by: str | None = Field(description="The id of the producer in GET /replicas.")


class WholeRunView(RunView):
    """One run with its attempts."""

    optional: ClassVar[frozenset[str]] = frozenset({"attempts_omitted", "output_cut"})
    lists: ClassVar[frozenset[str]] = frozenset({"attempts"})

    attempts: list[AttemptView]
    attempts_omitted: int | None = Field(
        default=None, description="Number of attempts omitted from the middle; absent if none is."
    )


def run_view(run: Run) -> RunView:
    """Return a run of a known event."""
    return RunView.model_construct(**_fields(run))


def whole_run_view(run: Run) -> WholeRunView:
    """Return a run of a known event with its attempts."""
    return WholeRunView.model_construct(
        **_fields(run), attempts=[attempt_view(attempt) for attempt in run.attempts],
        attempts_omitted=run.attempts_omitted,
    )


def run_json(run: Run) -> str:
    """Encode any run with its attempts as JSON; a run with only results has nulls for its job."""
    view = whole_run_view(run)
    if run.occurrence is not None:
        return as_json(view)
    absent = dict.fromkeys(name for name in RunView.model_fields if name not in RunView.optional)
    return json.dumps(absent | json.loads(as_json(view, warnings=False)))


def attempt_view(attempt: FinishedAttempt) -> AttemptView:
    """Return the view of an attempt."""
    return AttemptView.model_construct(
        attempt=attempt.attempt, outcome=attempt.outcome.value, worker=attempt.worker,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at, error=attempt.error, output=_output(attempt.output),
        output_cut=_cut(attempt),
    )


def _fields(run: Run) -> dict[str, Any]:
    about = run.occurrence
    fields: dict[str, Any] = {
        "event_id": UUID(run.event_id), "status": run.status.value, "attempt": run.attempt, "max_attempts": None,
        "deadline": run.deadline, "retry_at": run.retry_at, "started_at": run.started_at,
        "finished_at": run.finished_at, "duration_ms": _milliseconds(run.duration),
        "worker": run.worker, "error": run.error, "output": _output(run.output), "output_cut": _cut(run),
        "progress": run.progress, "triggered_by": None, "emitted_by": run.emitted_by,
    }
    if about is not None:
        fields |= {"job_id": UUID(about.job_id), "job_type": about.job_type, "tenant": about.tenant,
                   "due_at": about.due_at, "origin": about.origin.value, "triggered_by": _triggered_by(run)}
        if about.policy is not None and run.status is not RunStatus.EMITTED:
            fields["max_attempts"] = about.policy.max_attempts
    return fields


def _triggered_by(run: Run) -> TriggeredBy:
    if run.occurrence is None or run.occurrence.origin is not Origin.TRIGGER:
        return _BY_SCHEDULE
    via, who = run.triggered_by or UNKNOWN_TRIGGER
    return TriggeredBy.model_construct(via=via, who=who)


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else round(span / timedelta(milliseconds=1))


def _output(text: str | None) -> Any:
    return None if text is None else stored(text)


def _cut(of: Run | FinishedAttempt) -> Literal[True] | None:
    return True if of.output_cut and of.output is not None else None  # lists are read without outputs
