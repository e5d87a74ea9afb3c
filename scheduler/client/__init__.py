"""The host kit: needs pika and pydantic, and no server module except the parser of broker URLs."""

from scheduler.client.client import SchedulerClient
from scheduler.client.database import tables
from scheduler.client.errors import (
    AccessRefused,
    BrokerUnavailable,
    ClientError,
    CommandRejected,
    NoAnswer,
    NoSidecar,
    NotInTransaction,
)
from scheduler.client.handlers import Due, Handlers, TrackedDue, UnknownJobType, handlers, on_due
from scheduler.client.ids import job_id, new_job_id
from scheduler.client.inbox import forget, once
from scheduler.client.outbox import Outbox
from scheduler.client.protocol import JobCommands
from scheduler.client.relay import Relay
from scheduler.client.results import GiveUp, Snooze
from scheduler.client.runner import Runner
from scheduler.domain.messages import ScheduleAccepted

__all__ = [
    "AccessRefused", "BrokerUnavailable", "ClientError", "CommandRejected", "Due", "GiveUp", "Handlers",
    "JobCommands", "NoAnswer", "NoSidecar", "NotInTransaction", "Outbox", "Relay", "Runner", "ScheduleAccepted",
    "SchedulerClient", "Snooze", "TrackedDue", "UnknownJobType", "forget", "handlers", "job_id", "new_job_id",
    "on_due", "once", "tables",
]  # fmt: skip
