"""Describe the state of a run in a sentence."""

from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.formatting import relative, span
from scheduler.api.console.run_charts import timeline
from scheduler.domain.runs.run import FIRST_KEPT
from scheduler.views.jobs import JobView
from scheduler.views.runs import WholeRunView


def run_context(run: WholeRunView, job: JobView | None, now: datetime) -> dict[str, Any]:
    """Return the context of a run's page; `job` is None if it was pruned."""
    ends = [
        run.due_at,
        *(attempt.finished_at for attempt in run.attempts),
        *([run.finished_at] if run.finished_at else []),
    ]
    last = max(ends) if run.finished_at else now
    seconds = (last - min(ends)) / timedelta(seconds=1)
    changed = job is not None and run.finished_at is not None and job.updated_at > run.finished_at
    return {"run": run, "job": job, "changed_since": changed, "story": summarize_run(run, now),
            "pieces": timeline(run.model_dump(), now), "total_duration": f"{span(max(0.0, seconds))} in total",
            "first_kept": FIRST_KEPT}


def summarize_run(run: WholeRunView, now: datetime) -> str:
    """Return the status of a run and its next step."""
    tries = f"attempt {run.attempt}" + (f" of {run.max_attempts}" if run.max_attempts else "")
    match run.status:
        case "delivered":
            return f"Delivered, {tries}: no worker has started it yet; it must start {_until(run.deadline, now)}"
        case "running":
            since = _since(run.started_at, now)
            return f"Running, {tries}, since {since}; it must finish {_until(run.deadline, now)}"
        case "waiting":
            outcome = run.attempts[-1].outcome.replace("_", " ") if run.attempts else "failed"
            return f"Attempt {run.attempt} {_outcome_text(outcome)}; next attempt {relative(run.retry_at, now)}"
        case "succeeded":
            duration = f", in {span(run.duration_ms / 1000)}" if run.duration_ms is not None else ""
            return f"Succeeded with {tries}{duration}"
        case "dead":
            return f"Dead after {run.attempt} {'attempt' if run.attempt == 1 else 'attempts'}"
        case "cancelled":
            return "Cancelled: no further attempt is made"
    return "Emitted; the job is not tracked, so the outcome is not recorded"


def _outcome_text(outcome: str) -> str:
    texts = {"lost": "was lost: its worker stopped sending heartbeats", "snoozed": "was snoozed"}
    return texts.get(outcome, outcome)


def _until(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "without a deadline"
    return f"within {relative(moment, now).removeprefix('in ')}" if moment > now else "any moment now"


def _since(moment: datetime | None, now: datetime) -> str:
    return "a moment ago" if moment is None else relative(moment, now)
