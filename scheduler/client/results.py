"""What became of an attempt at a tracked event, as the sidecar wants to hear it."""

import json
import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field, ValidationError

from scheduler.domain.errors import Rejected
from scheduler.domain.message_parser import parse_result
from scheduler.domain.messages import ResultStatus, ScheduleResult
from scheduler.domain.messages.base import LIFETIME
from scheduler.domain.runs.result import ERROR_CHARACTERS, OUTPUT_BYTES

_SENT_BYTES = 1024 * 1024  # of an output: the sidecar keeps much less of it


class Snooze(Exception):  # noqa: N818 - not an accident: the handler asks for it
    """Raised by the handler of a tracked job: not now, again in so many seconds; this attempt does not count."""

    def __init__(self, seconds: timedelta | float) -> None:
        self.seconds = float(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
        if not 0 <= self.seconds <= LIFETIME:
            raise ValueError(f"a snooze lasts from 0 to {LIFETIME:,} seconds, not {self.seconds:g}")
        super().__init__(f"again in {self.seconds:g} s")


class GiveUp(Exception):  # noqa: N818 - as above
    """Raised by the handler of a tracked job: no further attempt will do better."""


class NotJson(Exception):  # noqa: N818 - as above
    """A handler returned a value that is not JSON."""


def as_json(returned: object) -> str:
    """Write what a handler returned as JSON; raise NotJson if it is none."""
    try:
        output = returned.model_dump(mode="json") if isinstance(returned, BaseModel) else returned
        return json.dumps(output, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise NotJson(
            f"the handler returned a value of type {type(returned).__name__} that is not JSON: {why}; "
            "return JSON values, a pydantic model or None"
        ) from None


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """Which attempt of which event, and who makes it."""

    event_id: UUID
    attempt: int
    worker: str | None = None

    def says(self, status: ResultStatus, **fields: Any) -> bytes:
        """Write a ScheduleResult."""
        about = {"event_id": str(self.event_id), "attempt": self.attempt, "status": status.value}
        if self.worker is not None:
            about["worker"] = self.worker
        # Not as ASCII: an escape has six bytes, and what is kept of an output is counted in bytes. Only half a
        # surrogate pair has no other way to be written.
        written = json.dumps(about | fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return written.encode("utf-8", "backslashreplace")

    def running(self, heartbeat: float) -> bytes:
        """Say that it is at work, and by when it says so again."""
        return self.says(ResultStatus.RUNNING, heartbeat=heartbeat)

    def succeeded(self, returned: object, **times: str) -> bytes:
        """Say what a handler returned; raise NotJson if that cannot be said."""
        text = "null" if returned is None else as_json(returned)
        output = returned.model_dump(mode="json") if isinstance(returned, BaseModel) else returned
        said = self.says(ResultStatus.SUCCEEDED, output=output, **times)
        if len(said) <= _SENT_BYTES:
            try:
                parse_result(ScheduleResult.kind, said)
            except Rejected:
                text = _repr(returned)  # a text that Postgres cannot hold
            else:
                return said
        # Longer than what is kept, if it was: then the sidecar marks it as cut.
        return self.says(ResultStatus.SUCCEEDED, output=_sendable(text[: 2 * OUTPUT_BYTES]), **times)

    def failed(self, error: BaseException, *, hopeless: bool = False, **times: str) -> bytes:
        """Say what a handler raised, which may be a Snooze or a GiveUp."""
        if isinstance(error, Snooze):
            return self.says(ResultStatus.SNOOZED, retry_in=error.seconds, **times)
        given_up = isinstance(error, GiveUp | NotJson)  # the work is done: another attempt would repeat it
        text = str(error) if given_up else "".join(traceback.format_exception(error))
        last, again = _sendable(text)[-ERROR_CHARACTERS:], not (given_up or hopeless)
        return self.says(ResultStatus.FAILED, error=last, retry=again, **times)


def tracked(body: bytes, worker: str | None = None) -> AttemptReport | None:
    """Return which attempt an event is, or None if its job is not tracked or that cannot be read."""
    if b'"run"' not in body:
        return None  # most are not tracked, and need not be read
    try:
        event = _Tracked.model_validate_json(body)
    except ValidationError:
        return None
    return None if event.run is None else AttemptReport(event.event_id, event.run.attempt, worker)


class _Run(BaseModel):
    attempt: int = Field(ge=1)


class _Tracked(BaseModel):
    event_id: UUID
    run: _Run | None = None


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - the host's own code; the work is done all the same
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _sendable(text: str) -> str:
    """What Postgres cannot hold is written out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
