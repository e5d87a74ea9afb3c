"""The contract, in and out: every message a host sends or receives."""

from scheduler.domain.messages.base import (
    DEFAULT_TENANT,
    MAX_MISSED_LISTED,
    Command,
    ContractMessage,
    Instant,
    JobId,
    Seconds,
    Tenant,
)
from scheduler.domain.messages.jobs import (
    AMQP_PRIORITIES,
    FieldProblem,
    JobCommand,
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

__all__ = [
    "AMQP_PRIORITIES", "COMMAND_MODELS", "DEFAULT_TENANT", "EVENT_MODELS", "MAX_MISSED_LISTED", "RESULT_MODELS",
    "Busy", "Command", "CommandTarget", "ContractMessage", "DueRun", "FieldProblem", "Instant", "JobCommand",
    "JobId", "Overlap", "Priority", "RecordedStatus", "ResultStatus", "RunPolicy", "ScheduleAccepted",
    "ScheduleCancel", "ScheduleDue", "ScheduleFinished", "ScheduleMissed", "SchedulePause", "ScheduleRecorded",
    "ScheduleRejected", "ScheduleRequest", "ScheduleResult", "ScheduleResume", "ScheduleRetry",
    "ScheduleTrigger", "ScheduleWorker", "Seconds", "Status", "Target", "Tenant", "WebhookTarget", "work_key",
]

# By routing key: what comes through scheduler_inbox, through scheduler_results, and what goes out.
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
