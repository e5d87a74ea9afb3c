"""Find the requests of a batch that are new versions of their jobs."""

from collections.abc import Mapping, Sequence

from scheduler.commands.decide_commands import MessageOutcome
from scheduler.domain.caller import UNVERIFIED_CALLER
from scheduler.domain.jobs.definition import Incoming, content
from scheduler.domain.jobs.job import CommandOutcome, Job, JobStatus
from scheduler.domain.messages import ScheduleRequest
from scheduler.postgres.jobs.versions import NewVersion


def new_versions(
    batch: Sequence[Incoming], outcomes: Sequence[MessageOutcome], stored: Mapping[str, Job]
) -> list[NewVersion]:
    """Return the requests that changed a job, restarted a cancelled one, or restored a version."""
    current = dict(stored)
    versions = []
    for incoming, outcome in zip(batch, outcomes, strict=True):
        if not isinstance(outcome, CommandOutcome):
            continue
        before, after = current.get(incoming.about), outcome.job
        current[incoming.about] = after
        if before is not None and isinstance(incoming.command, ScheduleRequest) and (
                incoming.restores or _is_new(before, after)):
            versions.append(NewVersion(before, after, incoming.caller or UNVERIFIED_CALLER))
    return versions


def _is_new(before: Job, after: Job) -> bool:
    if before.definition is None or after.definition is None or after.definition is before.definition:
        return False
    restarted = before.status is JobStatus.CANCELLED and after.status is not JobStatus.CANCELLED
    return restarted or content(before.definition, start_given=True) != content(after.definition, start_given=True)
