"""JobCommands: what SchedulerClient, Outbox and the test kit's InProcessClient have in common."""

from typing import Protocol, Unpack

from scheduler.client.commands import CalendarFields, CommandFields, Id, Payload, RequestFields


class JobCommands(Protocol):
    """The commands of a host; its code can take a client, an outbox or a test client as this type."""

    def schedule(
        self, id: Id, job_type: str, payload: Payload | None = None, **when: Unpack[RequestFields]
    ) -> None:
        """Create a job that runs once or repeatedly, or replace the job with the same id."""

    def cancel(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Cancel a job."""

    def pause(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Pause a job until it is resumed."""

    def resume(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Resume a paused job; its `on_missed` applies to the missed occurrences."""

    def trigger(self, id: Id, **sending: Unpack[CommandFields]) -> None:
        """Emit one extra occurrence now; the schedule is unchanged."""

    def retry(self, event_id: Id, **sending: Unpack[CommandFields]) -> None:
        """Retry a dead or cancelled run now."""

    def calendar(self, name: str, **content: Unpack[CalendarFields]) -> None:
        """Store a calendar, or replace the calendar with the same name and owner."""
