"""Messages of the contract that hosts send and receive."""

from scheduler.domain.message_base import MAX_MISSED, Command, ContractMessage, Instant, JobId, Seconds, Tenant
from scheduler.domain.messages.calendars import CalendarAccepted, CalendarRejected, ScheduleCalendar
from scheduler.domain.messages.commands import (
    BULK_VERBS,
    COMMAND_MODELS,
    JOB_VERBS,
    ScheduleCancel,
    SchedulePause,
    ScheduleResume,
    ScheduleTrigger,
)
from scheduler.domain.messages.jobs import (
    AMQP_PRIORITIES,
    FieldProblem,
    JobCommand,
    OnMissed,
    Priority,
    ScheduleAccepted,
    ScheduleDue,
    ScheduleMissed,
    ScheduleRejected,
    ScheduleReplanned,
    ScheduleRequest,
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
from scheduler.domain.messages.workers import Busy, ScheduleWorker
from scheduler.domain.tenants import DEFAULT_TENANT

__all__ = [
    "AMQP_PRIORITIES", "BULK_VERBS", "COMMAND_MODELS", "DEFAULT_TENANT", "EVENT_MODELS", "JOB_VERBS", "MAX_MISSED",
    "RESULT_MODELS", "Busy", "CalendarAccepted", "CalendarRejected", "Command", "ContractMessage",
    "DueRun", "FieldProblem", "Instant", "JobCommand", "JobId", "OnMissed", "Overlap", "Priority",
    "RecordedStatus", "ResultStatus", "RunPolicy", "ScheduleAccepted", "ScheduleCalendar", "ScheduleCancel",
    "ScheduleDue", "ScheduleFinished", "ScheduleMissed", "SchedulePause", "ScheduleRecorded", "ScheduleRejected",
    "ScheduleReplanned", "ScheduleRequest", "ScheduleResult", "ScheduleResume", "ScheduleRetry", "ScheduleTrigger",
    "ScheduleWorker", "Seconds", "Status", "Tenant",
]

# By routing key: messages in scheduler_results, and published events.
RESULT_MODELS: dict[str, type[ScheduleResult | ScheduleWorker]] = {
    ScheduleResult.kind: ScheduleResult, ScheduleWorker.kind: ScheduleWorker,
}
EVENT_MODELS: dict[str, type[ContractMessage]] = {
    "due": ScheduleDue,
    "missed": ScheduleMissed,
    "finished": ScheduleFinished,
    "rejected": ScheduleRejected,
    "replanned": ScheduleReplanned,
}
