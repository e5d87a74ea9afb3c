"""Commands for an existing job, and the registry of all commands.

Queue bindings, REST routes, the verbs of `scheduler job`, bulk actions, the outbox's kinds, the tenants' broker
permissions and the schemas are derived from the registry.
"""

from typing import ClassVar

from scheduler.domain.message_base import Command
from scheduler.domain.messages.calendars import ScheduleCalendar
from scheduler.domain.messages.jobs import JobCommand, ScheduleRequest
from scheduler.domain.messages.runs import ScheduleRetry


class JobVerb(JobCommand):
    """A command for an existing job, which operators have as a verb."""

    help: ClassVar[str]
    done: ClassVar[str]  # after it was applied
    changes: ClassVar[tuple[str, ...]] = ()  # statuses of the jobs that a bulk action changes
    undo: ClassVar[str | None] = None  # the verb that reverts it
    permanent: ClassVar[bool] = False  # asks for confirmation


class SchedulePause(JobVerb):
    """Stop emitting until the job is resumed."""

    kind: ClassVar[str] = "pause"
    help: ClassVar[str] = "Pause jobs until they are resumed"
    done: ClassVar[str] = "paused"
    changes: ClassVar[tuple[str, ...]] = ("pending",)
    undo: ClassVar[str | None] = "resume"


class ScheduleResume(JobVerb):
    """Resume a paused job; `on_missed` applies to the occurrences that passed."""

    kind: ClassVar[str] = "resume"
    help: ClassVar[str] = "Resume paused jobs"
    done: ClassVar[str] = "resumed"
    changes: ClassVar[tuple[str, ...]] = ("paused",)
    undo: ClassVar[str | None] = "pause"


class ScheduleTrigger(JobVerb):
    """Emit one extra occurrence now; the schedule is unchanged."""

    kind: ClassVar[str] = "trigger"
    help: ClassVar[str] = "Emit one extra occurrence of a job now"
    done: ClassVar[str] = "one extra run was triggered"


class ScheduleCancel(JobVerb):
    """Stop a job, even if its request has not arrived yet."""

    kind: ClassVar[str] = "cancel"
    help: ClassVar[str] = "Cancel jobs permanently"
    done: ClassVar[str] = "cancelled"
    changes: ClassVar[tuple[str, ...]] = ("pending", "paused")
    permanent: ClassVar[bool] = True


JOB_VERBS: dict[str, type[JobVerb]] = {
    model.kind: model for model in (SchedulePause, ScheduleResume, ScheduleTrigger, ScheduleCancel)
}
BULK_VERBS = {verb: model for verb, model in JOB_VERBS.items() if model.changes}
# By routing key: messages in scheduler_inbox.
COMMAND_MODELS: dict[str, type[Command]] = {
    ScheduleRequest.kind: ScheduleRequest, **JOB_VERBS, ScheduleRetry.kind: ScheduleRetry,
    ScheduleCalendar.kind: ScheduleCalendar,
}
