"""SchedulerClient: sends commands to the sidecar with publisher confirms."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Self, Unpack, overload

import pika

from scheduler.client.clock import issued_now
from scheduler.client.commands import (
    CalendarFields,
    CommandFields,
    Id,
    OutgoingCommand,
    Payload,
    RequestFields,
    calendar,
    order,
    request,
)
from scheduler.client.connection import Connection
from scheduler.client.pool import ConnectionPool
from scheduler.domain.messages import CalendarAccepted, ScheduleAccepted

REPLY_SECONDS = 10.0
_No = Literal[False]


class SchedulerClient:
    """The commands; each returns once the sidecar's queue stores it, or raises. Thread-safe.

    With `wait=True`, or a number of seconds, a command also waits for the sidecar's reply.
    """

    def __init__(
        self, url: str, *, timeout: float = 10.0, name: str = "client",
        issued_at: Callable[[], datetime] = issued_now, user_id: str | None = None,
    ) -> None:
        """Connect lazily to `url`, or to several separated by commas; a command fails after `timeout` seconds.

        `user_id` is the client's AMQP user, if the sidecar takes tenants from it (SCHEDULER_TENANT_BY).
        """
        self._pool = ConnectionPool([part.strip() for part in url.split(",")], name)
        self._timeout = timeout
        self._issued_at = issued_at
        self._user_id = user_id

    @overload
    def schedule(
        self, id: Id, job_type: str, payload: Payload | None = None, *,
        wait: _No = False, **when: Unpack[RequestFields],
    ) -> None: ...
    @overload
    def schedule(
        self, id: Id, job_type: str, payload: Payload | None = None, *,
        wait: float, **when: Unpack[RequestFields],
    ) -> ScheduleAccepted: ...
    def schedule(
        self, id: Id, job_type: str, payload: Payload | None = None, *,
        wait: bool | float = False, **when: Unpack[RequestFields],
    ) -> ScheduleAccepted | None:
        """Create a job that runs once or repeatedly, or replace the job with the same id."""
        return self._send(request(id, job_type, payload, when, self._now), wait)

    @overload
    def cancel(self, id: Id, *, wait: _No = False, **sending: Unpack[CommandFields]) -> None: ...
    @overload
    def cancel(self, id: Id, *, wait: float, **sending: Unpack[CommandFields]) -> ScheduleAccepted: ...
    def cancel(
        self, id: Id, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Cancel a job."""
        return self._send(order("cancel", id, sending), wait)

    @overload
    def pause(self, id: Id, *, wait: _No = False, **sending: Unpack[CommandFields]) -> None: ...
    @overload
    def pause(self, id: Id, *, wait: float, **sending: Unpack[CommandFields]) -> ScheduleAccepted: ...
    def pause(
        self, id: Id, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Pause a job until it is resumed."""
        return self._send(order("pause", id, sending), wait)

    @overload
    def resume(self, id: Id, *, wait: _No = False, **sending: Unpack[CommandFields]) -> None: ...
    @overload
    def resume(self, id: Id, *, wait: float, **sending: Unpack[CommandFields]) -> ScheduleAccepted: ...
    def resume(
        self, id: Id, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Resume a paused job; its `on_missed` applies to the missed occurrences."""
        return self._send(order("resume", id, sending), wait)

    @overload
    def trigger(self, id: Id, *, wait: _No = False, **sending: Unpack[CommandFields]) -> None: ...
    @overload
    def trigger(self, id: Id, *, wait: float, **sending: Unpack[CommandFields]) -> ScheduleAccepted: ...
    def trigger(
        self, id: Id, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Emit one extra occurrence now; the schedule is unchanged."""
        return self._send(order("trigger", id, sending), wait)

    @overload
    def retry(self, event_id: Id, *, wait: _No = False, **sending: Unpack[CommandFields]) -> None: ...
    @overload
    def retry(self, event_id: Id, *, wait: float, **sending: Unpack[CommandFields]) -> ScheduleAccepted: ...
    def retry(
        self, event_id: Id, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Retry a dead or cancelled run now."""
        return self._send(order("retry", event_id, sending), wait)

    @overload
    def calendar(self, name: str, *, wait: _No = False, **content: Unpack[CalendarFields]) -> None: ...
    @overload
    def calendar(self, name: str, *, wait: float, **content: Unpack[CalendarFields]) -> CalendarAccepted: ...
    def calendar(
        self, name: str, *, wait: bool | float = False, **content: Unpack[CalendarFields]
    ) -> CalendarAccepted | None:
        """Store a calendar, or replace the calendar with the same name and owner."""
        reply = self._send_command(calendar(name, content), wait)
        assert not isinstance(reply, ScheduleAccepted)  # noqa: S101 - that is the reply to other commands
        return reply

    def _now(self) -> datetime:
        """Return the base time for a `run_at` of type `timedelta`."""
        return datetime.now(UTC)

    def _send(self, outgoing: OutgoingCommand, wait: bool | float) -> ScheduleAccepted | None:
        reply = self._send_command(outgoing, wait)
        assert not isinstance(reply, CalendarAccepted)  # noqa: S101 - that is the reply to a calendar
        return reply

    def _send_command(
        self, outgoing: OutgoingCommand, wait: bool | float
    ) -> ScheduleAccepted | CalendarAccepted | None:
        # Encode once: if a reconnect sends it twice, both have the same issued_at and the second is a duplicate.
        body = outgoing.body(self._issued_at)

        def publish(connection: Connection) -> ScheduleAccepted | CalendarAccepted | None:
            message_properties = properties(outgoing, self._user_id)
            if wait is False:
                connection.publish(outgoing.kind, body, message_properties)
                return None
            timeout = REPLY_SECONDS if wait is True else wait
            return connection.request(outgoing.kind, body, message_properties, timeout)

        return self._pool.use(publish, self._timeout)

    def close(self) -> None:
        """Close the idle connections; the client can be used again."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def properties(outgoing: OutgoingCommand, user_id: str | None) -> pika.BasicProperties:
    """Return the AMQP properties of a command."""
    return pika.BasicProperties(
        content_type="application/json", delivery_mode=2, type=outgoing.message_type,
        correlation_id=outgoing.correlation_id, headers=outgoing.headers or None, user_id=user_id,
    )
