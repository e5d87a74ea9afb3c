"""A SchedulerClient whose sidecar is in the same process: hand it to the code under test."""

from datetime import datetime, timedelta

from scheduler.client.client import SchedulerClient
from scheduler.client.commands import OutgoingCommand
from scheduler.client.errors import CommandRejected
from scheduler.domain.errors import Problem
from scheduler.domain.messages import ScheduleAccepted, ScheduleRejected
from scheduler.testing.sidecar import Sidecar


class InProcessClient(SchedulerClient):
    """The same methods and the same errors, without a broker; commands are issued by the sidecar's clock."""

    def __init__(self, sidecar: Sidecar) -> None:
        """Send to `sidecar`."""
        self._sidecar = sidecar
        self._last = datetime.min.replace(tzinfo=sidecar.now.tzinfo)

    def _now(self) -> datetime:
        return self._sidecar.now

    def _issued_now(self) -> datetime:
        self._last = max(self._sidecar.now, self._last + timedelta(microseconds=1))
        return self._last

    def _send(self, outgoing: OutgoingCommand, wait: bool | float) -> ScheduleAccepted | None:
        answer = self._sidecar.publish(
            outgoing.kind, outgoing.body(self._issued_now), correlation_id=outgoing.correlation_id,
            headers=outgoing.headers, message_type=outgoing.message_type,
        )
        if isinstance(answer, ScheduleRejected):
            raise CommandRejected(Problem(each.field, each.problem) for each in answer.errors)
        assert isinstance(answer, ScheduleAccepted)  # noqa: S101 - a client sends no results
        return None if wait is False else answer

    def close(self) -> None:
        """There is nothing to close."""
