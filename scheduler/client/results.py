"""ScheduleResult messages for attempts of tracked runs."""

import json
import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field, ValidationError

from scheduler.domain.errors import Rejected
from scheduler.domain.message_base import LIFETIME
from scheduler.domain.message_parser import parse_result
from scheduler.domain.messages import ResultStatus, ScheduleResult
from scheduler.domain.runs.result import ERROR_CHARACTERS, OUTPUT_BYTES

_SENT_BYTES = 1024 * 1024  # of an output: the sidecar stores much less


class Snooze(Exception):  # noqa: N818 - a request by the handler, not an error
    """Raised by the handler of a tracked job to retry after `seconds`; this attempt does not count."""

    def __init__(self, seconds: timedelta | float) -> None:
        self.seconds = float(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
        if not 0 <= self.seconds <= LIFETIME:
            raise ValueError(f"a snooze lasts from 0 to {LIFETIME:,} seconds, not {self.seconds:g}")
        super().__init__(f"again in {self.seconds:g} s")


class GiveUp(Exception):  # noqa: N818 - as above
    """Raised by the handler of a tracked job if a retry would not help."""


class NotJson(Exception):  # noqa: N818 - as above
    """A handler returned a value that is not JSON."""


def as_json(returned: object) -> str:
    """Encode a handler's return value as JSON; raises NotJson."""
    try:
        output = returned.model_dump(mode="json") if isinstance(returned, BaseModel) else returned
        return json.dumps(output, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise NotJson(
            f"the handler returned a value of type {type(returned).__name__} that is not JSON: {reason}; "
            "return JSON values, a pydantic model or None"
        ) from None


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """An attempt at an event, and its worker."""

    event_id: UUID
    attempt: int
    worker: str | None = None

    def encode(self, status: ResultStatus, **fields: Any) -> bytes:
        """Encode a ScheduleResult."""
        message = {"event_id": str(self.event_id), "attempt": self.attempt, "status": status.value}
        if self.worker is not None:
            message["worker"] = self.worker
        # Not as ASCII: an escape has six bytes, and the sidecar truncates outputs by bytes. Only lone surrogates
        # need an escape.
        text = json.dumps(message | fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")

    def running(self, heartbeat: float) -> bytes:
        """Encode a `running` result, which promises the next one within `heartbeat` seconds."""
        return self.encode(ResultStatus.RUNNING, heartbeat=heartbeat)

    def succeeded(self, returned: object, **times: str) -> bytes:
        """Encode a handler's return value; raises NotJson."""
        text = "null" if returned is None else as_json(returned)
        output = returned.model_dump(mode="json") if isinstance(returned, BaseModel) else returned
        result = self.encode(ResultStatus.SUCCEEDED, output=output, **times)
        if len(result) <= _SENT_BYTES:
            try:
                parse_result(ScheduleResult.kind, result)
            except Rejected:
                text = _repr(returned)  # a text that Postgres cannot store
            else:
                return result
        # Keep more than the sidecar stores, so that it marks the output as truncated.
        return self.encode(ResultStatus.SUCCEEDED, output=_sendable(text[: 2 * OUTPUT_BYTES]), **times)

    def failed(self, error: BaseException, *, is_permanent: bool = False, **times: str) -> bytes:
        """Encode a handler's error, which may be a Snooze or a GiveUp."""
        if isinstance(error, Snooze):
            return self.encode(ResultStatus.SNOOZED, retry_in=error.seconds, **times)
        given_up = isinstance(error, GiveUp | NotJson)  # for NotJson the work is done: a retry would repeat it
        text = str(error) if given_up else "".join(traceback.format_exception(error))
        last, retry = _sendable(text)[-ERROR_CHARACTERS:], not (given_up or is_permanent)
        return self.encode(ResultStatus.FAILED, error=last, retry=retry, **times)


def tracked(body: bytes, worker: str | None = None) -> AttemptReport | None:
    """Return the event's attempt, or None if its job is not tracked or the event is unreadable."""
    if b'"run"' not in body:
        return None  # skips parsing most untracked events
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
    except Exception as error:  # noqa: BLE001 - the host's code; the work is done
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _sendable(text: str) -> str:
    """Escape characters that Postgres cannot store."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
