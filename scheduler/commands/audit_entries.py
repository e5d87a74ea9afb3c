"""What the audit tells of commands: who gave them, and what they changed."""

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
from scheduler.domain.target_credentials import mask_target_text
from scheduler.postgres.audit import AuditEntry

# Who sent it is told by the entry itself, and in which trace is nobody's business later.
_LEFT_OUT = {
    "spec", "payload", "correlation_id", "traceparent", "tracestate", "dtstart", "ends_at", "start_source",
}
_ASKED = [each.name for each in fields(Definition) if each.name not in _LEFT_OUT]
_SPEC = [each.name for each in fields(Spec) if each.name not in _LEFT_OUT]


def job_entries(
    batch: Sequence[Incoming], verdicts: Sequence[MessageOutcome], known: Mapping[str, Job]
) -> list[AuditEntry]:
    """Return an entry for each command that changed its job; one made over AMQP tells of it itself."""
    current = dict(known)
    found = []
    for incoming, verdict in zip(batch, verdicts, strict=True):
        if not isinstance(verdict, CommandOutcome):
            continue
        before, after = current.get(incoming.about), verdict.job
        current[incoming.about] = after
        caller = incoming.caller or UNVERIFIED_CALLER
        made = before is None or before.definition is None
        if after is before or (made and caller.via is Via.AMQP and isinstance(incoming.command, ScheduleRequest)):
            continue
        old, new = _differing(_job(before), _job(after))
        found.append(AuditEntry(caller, incoming.command.kind, "job", after.id, after.tenant, old, new))
    return found


def delayed_entry(incoming: Incoming) -> AuditEntry:
    """Return the entry of a cancelled delayed message, which belongs to no tenant."""
    return AuditEntry(incoming.caller or UNVERIFIED_CALLER, incoming.command.kind, "delayed", incoming.about, "*")


def callers(batch: Iterable[Incoming]) -> dict[str, Caller]:
    """Return who gave the last command about each job, of those who are known."""
    return {each.about: each.caller for each in batch if each.caller is not None}


def run_entries(
    batch: Sequence[Incoming], verdicts: Sequence[MessageOutcome], known: Mapping[str, Run]
) -> list[AuditEntry]:
    """Return an entry for each retry that gave its run new attempts."""
    return [
        run_entry(incoming.caller or UNVERIFIED_CALLER, incoming.command.kind, known.get(incoming.about),
                  verdict.run)
        for incoming, verdict in zip(batch, verdicts, strict=True)
        if isinstance(verdict, RetryOutcome) and verdict.status == "scheduled"
    ]


def run_entry(caller: Caller, action: str, before: Run | None, after: Run) -> AuditEntry:
    """Return the entry of a change to a run."""
    tenant = after.occurrence.tenant if after.occurrence else ""
    old, new = _differing(_run(before), _run(after))
    return AuditEntry(caller, action, "run", after.event_id, tenant, old, new)


def _job(job: Job | None) -> dict[str, Any]:
    if job is None:
        return {}
    told: dict[str, Any] = {
        "status": job.status.value, "next_run_at": job.next_run_at, "triggers_waiting": len(job.triggers),
    }
    asked = job.definition
    if asked is not None:
        told |= {name: getattr(asked, name) for name in _ASKED}
        told |= {name: getattr(asked.spec, name) for name in _SPEC}
        # Not itself: what is erased from a job must not live on in what cannot be changed.
        told["payload_sha256"] = hashlib.sha256(asked.payload.encode("utf-8", "surrogatepass")).hexdigest()
    return told


def _run(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {}
    return {"status": run.status.value, "attempt": run.attempt, "error": run.error, "worker": run.worker}


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return what differs, as it was and as it became; None where there was nothing."""
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
