"""A SchedulerClient for the code under test, with a sidecar in the same process."""

from datetime import datetime, timedelta

from scheduler.client.client import SchedulerClient
from scheduler.client.commands import OutgoingCommand
from scheduler.client.errors import CommandRejected
from scheduler.domain.errors import Problem
from scheduler.domain.messages import CalendarAccepted, CalendarRejected, ScheduleAccepted, ScheduleRejected
from scheduler.testing.sidecar import Sidecar


class InProcessClient(SchedulerClient):
    """A SchedulerClient without a broker; `issued_at` is the sidecar's clock."""

    def __init__(self, sidecar: Sidecar) -> None:
        """Send to `sidecar`."""
        self._sidecar = sidecar
        self._last = datetime.min.replace(tzinfo=sidecar.now.tzinfo)

    def _now(self) -> datetime:
        return self._sidecar.now

    def _issued_now(self) -> datetime:
        self._last = max(self._sidecar.now, self._last + timedelta(microseconds=1))
        return self._last

    def _send_command(
        self, outgoing: OutgoingCommand, wait: bool | float
    ) -> ScheduleAccepted | CalendarAccepted | None:
        reply = self._sidecar.publish(
            outgoing.kind, outgoing.body(self._issued_now), correlation_id=outgoing.correlation_id,
            headers=outgoing.headers, message_type=outgoing.message_type,
        )
        if isinstance(reply, ScheduleRejected | CalendarRejected):
            raise CommandRejected(Problem(error.field, error.problem) for error in reply.errors)
        assert isinstance(reply, ScheduleAccepted | CalendarAccepted)  # noqa: S101 - a client sends no results
        return None if wait is False else reply

    def close(self) -> None:
        """Do nothing."""
