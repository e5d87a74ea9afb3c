"""Build audit entries for commands: the caller and the changed fields."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from scheduler.commands.decide_commands import MessageOutcome, RetryOutcome
from scheduler.domain.caller import UNVERIFIED_CALLER, Caller, Via
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.definition import Definition, Incoming
from scheduler.domain.jobs.job import CommandOutcome, Job
from scheduler.domain.messages import ScheduleRequest
from scheduler.domain.recurrence import Spec
from scheduler.domain.runs.run import Run
from scheduler.domain.targets.target import mask_target_text
from scheduler.postgres.audit import AuditEntry

# The entry has its own caller, and the trace is irrelevant later.
_LEFT_OUT = {
    "spec", "payload", "correlation_id", "traceparent", "tracestate", "dtstart", "ends_at", "start_source",
}
_DEFINITION_FIELDS = [field.name for field in fields(Definition) if field.name not in _LEFT_OUT]
_SPEC_FIELDS = [field.name for field in fields(Spec) if field.name not in _LEFT_OUT]


def job_entries(
    batch: Sequence[Incoming], outcomes: Sequence[MessageOutcome], jobs: Mapping[str, Job]
) -> list[AuditEntry]:
    """Return an entry for each command that changed its job, except for new jobs requested over AMQP."""
    current = dict(jobs)
    entries = []
    for incoming, outcome in zip(batch, outcomes, strict=True):
        if not isinstance(outcome, CommandOutcome):
            continue
        before, after = current.get(incoming.about), outcome.job
        current[incoming.about] = after
        caller = incoming.caller or UNVERIFIED_CALLER
        is_new = before is None or before.definition is None
        over_amqp = caller.via is Via.AMQP
        if after is before or (is_new and over_amqp and isinstance(incoming.command, ScheduleRequest)):
            continue
        old, new = _difference(_job_fields(before), _job_fields(after) | _trigger_fields(before, after))
        entries.append(AuditEntry(caller, incoming.command.kind, "job", after.id, after.tenant, old, new))
    return entries


def delayed_entry(incoming: Incoming) -> AuditEntry:
    """Return the entry for a cancelled delayed message, which belongs to no tenant."""
    return AuditEntry(incoming.caller or UNVERIFIED_CALLER, incoming.command.kind, "delayed", incoming.about, "*")


def callers(batch: Iterable[Incoming]) -> dict[str, Caller]:
    """Return the verified caller of the last command for each job."""
    return {incoming.about: incoming.caller for incoming in batch if incoming.caller is not None}


def all_over_amqp(callers: Iterable[Caller]) -> bool:
    """Return whether all verified callers of a batch used AMQP: a new job that they requested has no entry."""
    return all(caller.via is Via.AMQP for caller in callers)


def run_entries(
    batch: Sequence[Incoming], outcomes: Sequence[MessageOutcome], runs: Mapping[str, Run]
) -> list[AuditEntry]:
    """Return an entry for each retry that gave its run new attempts."""
    return [
        run_entry(incoming.caller or UNVERIFIED_CALLER, incoming.command.kind, runs.get(incoming.about),
                  outcome.run)
        for incoming, outcome in zip(batch, outcomes, strict=True)
        if isinstance(outcome, RetryOutcome) and outcome.status == "scheduled"
    ]


def run_entry(caller: Caller, action: str, before: Run | None, after: Run) -> AuditEntry:
    """Return the entry for a change to a run."""
    tenant = after.occurrence.tenant if after.occurrence else ""
    old, new = _difference(_run_fields(before), _run_fields(after))
    return AuditEntry(caller, action, "run", after.event_id, tenant, old, new)


def _job_fields(job: Job | None) -> dict[str, Any]:
    if job is None:
        return {}
    values: dict[str, Any] = {
        "status": job.status.value, "next_run_at": job.next_run_at, "triggers_waiting": len(job.triggers),
    }
    definition = job.definition
    if definition is not None:
        values |= {name: getattr(definition, name) for name in _DEFINITION_FIELDS}
        values |= {name: getattr(definition.spec, name) for name in _SPEC_FIELDS}
        # Only the hash: audit entries cannot be changed, so a payload could never be erased from them.
        values["payload_sha256"] = hashlib.sha256(definition.payload.encode("utf-8", "surrogatepass")).hexdigest()
    return values


def _trigger_fields(before: Job | None, after: Job) -> dict[str, Any]:
    """Return the due time of a new trigger, by which lists of runs find its caller."""
    added = set(after.triggers) - set(before.triggers if before is not None else ())
    if not added or after.trigger_at is None:
        return {}
    issued = max(added)
    # As the emission will decide: pending triggers follow each other by a microsecond.
    turn = after.trigger_at + after.triggers.index(issued) * timedelta(microseconds=1)
    return {"due_at": min(issued, turn)}


def _run_fields(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {}
    return {"status": run.status.value, "attempt": run.attempt, "error": run.error, "worker": run.worker}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the old and new values of changed fields as JSON; None for the old ones of a new row."""
    names = [name for name in after if before.get(name) != after[name]]
    old = _json({name: before.get(name) for name in names}) if before else None
    return old, _json({name: after[name] for name in names})


def _json(values: Mapping[str, Any]) -> str:
    if isinstance(values.get("target"), str):
        values = dict(values) | {"target": mask_target_text(values["target"])}
    return json.dumps(values, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
