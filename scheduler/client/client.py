"""Sends commands to the sidecar: confirmed, or an error."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self, Unpack
from uuid import UUID

import pika

from scheduler.client.clock import issued_now
from scheduler.client.commands import CommandFields, OutgoingCommand, Payload, RequestFields, order, request
from scheduler.client.connection import Connection
from scheduler.client.pool import ConnectionPool
from scheduler.domain.messages import ScheduleAccepted

ANSWER_SECONDS = 10.0


class SchedulerClient:
    """Six commands; each returns once a sidecar's queue holds it, or raises. Safe to use from threads.

    With `wait=True`, or a number of seconds, a command also waits for the sidecar's own answer.
    """

    def __init__(
        self, url: str, *, timeout: float = 10.0, name: str = "client",
        issued_at: Callable[[], datetime] = issued_now, user_id: str | None = None,
    ) -> None:
        """Connect lazily to `url`, or to several with commas between; give up on a command after `timeout`.

        `user_id` is the broker's user that we are, where the sidecar takes tenants from it (SCHEDULER_TENANT_BY).
        """
        self._pool = ConnectionPool([part.strip() for part in url.split(",")], name)
        self._timeout = timeout
        self._issued_at = issued_at
        self._user_id = user_id

    def schedule(
        self, id: UUID | str, job_type: str, payload: Payload | None = None, *,
        wait: bool | float = False, **when: Unpack[RequestFields],
    ) -> ScheduleAccepted | None:
        """Run a job once or again and again; the same id again replaces the schedule."""
        return self._send(request(id, job_type, payload, when, self._now), wait)

    def cancel(
        self, id: UUID | str, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Stop a job."""
        return self._send(order("cancel", id, sending), wait)

    def pause(
        self, id: UUID | str, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Emit nothing until the job is resumed."""
        return self._send(order("pause", id, sending), wait)

    def resume(
        self, id: UUID | str, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Go on with a paused job; its `on_missed` decides about what passed meanwhile."""
        return self._send(order("resume", id, sending), wait)

    def trigger(
        self, id: UUID | str, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Emit one extra occurrence now and leave the schedule as it is."""
        return self._send(order("trigger", id, sending), wait)

    def retry(
        self, event_id: UUID | str, *, wait: bool | float = False, **sending: Unpack[CommandFields]
    ) -> ScheduleAccepted | None:
        """Give a run that was given up or cancelled a fresh set of attempts, at once."""
        return self._send(order("retry", event_id, sending), wait)

    def _now(self) -> datetime:
        """The time that a `run_at` of `timedelta` counts from."""
        return datetime.now(UTC)

    def _send(self, outgoing: OutgoingCommand, wait: bool | float) -> ScheduleAccepted | None:
        # Encoded once: should it be sent twice over a broken connection, the second changes nothing.
        body = outgoing.body(self._issued_at)

        def publish(connection: Connection) -> ScheduleAccepted | None:
            beside = properties(outgoing, self._user_id)
            if wait is False:
                connection.publish(outgoing.kind, body, beside)
                return None
            return connection.ask(outgoing.kind, body, beside, ANSWER_SECONDS if wait is True else wait)

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
