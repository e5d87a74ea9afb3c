"""Commands written in the host's own transaction: sent if it commits, and never if it does not."""

import json
from typing import Any, Unpack
from uuid import UUID

from scheduler.client.commands import (
    CommandFields,
    OutgoingCommand,
    Payload,
    RequestFields,
    encode,
    order,
    request,
)
from scheduler.client.database import execute


class Outbox:
    """The six commands of SchedulerClient, into the table scheduler_outbox; a relay sends them on.

    Their order for one job is the database's clock at the moment of writing, the same for all processes.
    """

    def __init__(self, database: Any) -> None:
        """Write through a connection, cursor or session that is in the host's transaction."""
        self._database = database

    def schedule(
        self, id: UUID | str, job_type: str, payload: Payload | None = None, **when: Unpack[RequestFields]
    ) -> None:
        """Run a job once or again and again; the same id again replaces the schedule."""
        self._write(request(id, job_type, payload, when))

    def cancel(self, id: UUID | str, **sending: Unpack[CommandFields]) -> None:
        """Stop a job."""
        self._write(order("cancel", id, sending))

    def pause(self, id: UUID | str, **sending: Unpack[CommandFields]) -> None:
        """Emit nothing until the job is resumed."""
        self._write(order("pause", id, sending))

    def resume(self, id: UUID | str, **sending: Unpack[CommandFields]) -> None:
        """Go on with a paused job."""
        self._write(order("resume", id, sending))

    def trigger(self, id: UUID | str, **sending: Unpack[CommandFields]) -> None:
        """Emit one extra occurrence now."""
        self._write(order("trigger", id, sending))

    def retry(self, event_id: UUID | str, **sending: Unpack[CommandFields]) -> None:
        """Give a run that was given up or cancelled a fresh set of attempts."""
        self._write(order("retry", event_id, sending))

    def _write(self, outgoing: OutgoingCommand) -> None:
        headers = json.dumps(outgoing.headers) if outgoing.headers else None
        body = encode(outgoing.fields).decode()
        execute(self._database, "write_command", (outgoing.kind, body, outgoing.correlation_id, headers))
