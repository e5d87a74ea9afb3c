"""The transactional outbox: commands that are sent if and only if the host's transaction commits."""

import json
from typing import Any, Unpack

from scheduler.client.commands import (
    CalendarFields,
    CommandFields,
    Id,
    OutgoingCommand,
    Payload,
    RequestFields,
    calendar,
    encode,
    order,
    request,
)
from scheduler.client.database import execute


class Outbox:
    """The commands of SchedulerClient, inserted into scheduler_outbox; a Relay publishes them.

    The database's clock at the insert orders the commands for one job, across all processes.
    """

    def __init__(self, database: Any) -> None:
        """Use a connection, cursor or session in the host's transaction."""
        self._database = database

    def schedule(
        self, id: Id, job_type: str, payload: Payload | None = None, **when: Unpack[RequestFields]
    ) -> None:
        """Create a job that runs once or repeatedly, or replace the job with the same id."""
        self._write(request(id, job_type, payload, when))

    def cancel(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Cancel a job."""
        self._write(order("cancel", id, sending))

    def pause(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Pause a job until it is resumed."""
        self._write(order("pause", id, sending))

    def resume(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Resume a paused job."""
        self._write(order("resume", id, sending))

    def trigger(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Emit one extra occurrence now."""
        self._write(order("trigger", id, sending))

    def retry(self, event_id: Id, **sending: Unpack[CommandFields]) -> None:
        """Retry a dead or cancelled run."""
        self._write(order("retry", event_id, sending))

    def calendar(self, name: str, **content: Unpack[CalendarFields]) -> None:
        """Store a calendar, or replace the calendar with the same name and owner."""
        self._write(calendar(name, content))

    def _write(self, outgoing: OutgoingCommand) -> None:
        headers = json.dumps(outgoing.headers) if outgoing.headers else None
        body = encode(outgoing.fields).decode()
        execute(self._database, "write_command", (outgoing.kind, body, outgoing.correlation_id, headers))
