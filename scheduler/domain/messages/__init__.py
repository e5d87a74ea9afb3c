"""Messages of the contract that hosts send and receive."""

from scheduler.domain.messages.base import MAX_MISSED, Command, ContractMessage, Instant, JobId, Seconds, Tenant
from scheduler.domain.messages.jobs import (
    AMQP_PRIORITIES,
    FieldProblem,
    JobCommand,
    OnMissed,
    Priority,
    ScheduleAccepted,
    ScheduleCancel,
    ScheduleDue,
    ScheduleMissed,
    SchedulePause,
    ScheduleRejected,
    ScheduleRequest,
    ScheduleResume,
    ScheduleTrigger,
    Status,
)
from scheduler.domain.messages.runs import (
    DueRun,
    Overlap,
    RecordedStatus,
    ResultStatus,
    RunPolicy,
    ScheduleFinished,
    ScheduleRecorded,
    ScheduleResult,
    ScheduleRetry,
)
from scheduler.domain.messages.targets import CommandTarget, Target, WebhookTarget, work_key
from scheduler.domain.messages.workers import Busy, ScheduleWorker
from scheduler.domain.tenants import DEFAULT_TENANT

__all__ = [
    "AMQP_PRIORITIES", "COMMAND_MODELS", "DEFAULT_TENANT", "EVENT_MODELS", "MAX_MISSED", "RESULT_MODELS",
    "Busy", "Command", "CommandTarget", "ContractMessage", "DueRun", "FieldProblem", "Instant", "JobCommand",
    "JobId", "OnMissed", "Overlap", "Priority", "RecordedStatus", "ResultStatus", "RunPolicy", "ScheduleAccepted",
    "ScheduleCancel", "ScheduleDue", "ScheduleFinished", "ScheduleMissed", "SchedulePause", "ScheduleRecorded",
    "ScheduleRejected", "ScheduleRequest", "ScheduleResult", "ScheduleResume", "ScheduleRetry",
    "ScheduleTrigger", "ScheduleWorker", "Seconds", "Status", "Target", "Tenant", "WebhookTarget", "work_key",
]

# By routing key: messages in scheduler_inbox, messages in scheduler_results, and published events.
COMMAND_MODELS: dict[str, type[Command]] = {
    model.kind: model
    for model in (
        ScheduleRequest, ScheduleCancel, SchedulePause, ScheduleResume, ScheduleTrigger, ScheduleRetry,
    )
}
RESULT_MODELS: dict[str, type[ScheduleResult | ScheduleWorker]] = {
    ScheduleResult.kind: ScheduleResult, ScheduleWorker.kind: ScheduleWorker,
}
EVENT_MODELS: dict[str, type[ContractMessage]] = {
    "due": ScheduleDue,
    "missed": ScheduleMissed,
    "finished": ScheduleFinished,
    "rejected": ScheduleRejected,
}
