"""A ScheduleDue as a worker reads it, and the ScheduleResult that it writes of it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import Field, ValidationError

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.messages import ContractMessage, Instant, ResultStatus
from scheduler.domain.strict_json import parse_object
from scheduler.domain.times import rfc3339
from scheduler.rabbit.reading import Delivery, UnreadableProperties
from scheduler.workers.outcome import Outcome

DEFAULT_TIMEOUT = 300.0
DEFAULT_MAX_DELAY = 3600.0


class _Run(ContractMessage, extra="ignore"):
    attempt: int = Field(ge=1, le=2**31 - 1, strict=True)
    deadline: Instant | None = None
    timeout: float = Field(default=DEFAULT_TIMEOUT, gt=0, allow_inf_nan=False)
    max_delay: float = Field(default=DEFAULT_MAX_DELAY, ge=0, allow_inf_nan=False)


class _Event(ContractMessage, extra="ignore"):
    event_id: UUID
    job_id: UUID
    job_type: str
    emitted_at: Instant
    run: _Run
    target: dict[str, Any] | None = None


@dataclass(slots=True)
class Attempt:
    """One attempt at the work of an event."""

    event_id: str
    number: int
    job_id: str
    job_type: str
    event: dict[str, Any]  # the whole ScheduleDue
    body: bytes  # as it came
    target: dict[str, Any]  # `webhook` or `command`; not yet judged
    timeout: float  # seconds that the policy gives it from its start
    max_delay: float
    start_timeout: float  # seconds from its emission within which it must be under way
    traceparent: str | None = None
    tracestate: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from any other."""
        return self.event_id, self.number

    def says(self, outcome: Outcome, worker: str, started_at: datetime | None = None) -> bytes:
        """Write how it ended, or that it is put off."""
        times = {} if started_at is None else {
            "started_at": rfc3339(started_at), "finished_at": rfc3339(datetime.now(UTC)),
        }
        return self._written(outcome.fields() | times, worker)

    def running(self, worker: str, started_at: datetime, **fields: Any) -> bytes:
        """Write that it is at work; `fields` may be a heartbeat, a progress or the newest output."""
        about = {"status": ResultStatus.RUNNING.value, "started_at": rfc3339(started_at)}
        return self._written(about | fields, worker)

    def _written(self, fields: dict[str, Any], worker: str) -> bytes:
        about = {"event_id": self.event_id, "attempt": self.number, "worker": worker}
        return _printable(json.dumps(about | fields, allow_nan=False, separators=(",", ":"))).encode()


def _printable(text: str) -> str:
    """Write out what Postgres cannot hold: an endpoint or a program may have said anything."""
    # Half a surrogate pair and NUL are escapes in what json.dumps writes; whole pairs are left as they are.
    if "\\u0000" not in text and "\\ud" not in text:
        return text
    return json.dumps(_clean(json.loads(text)), separators=(",", ":"))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return value


def read_attempt(delivery: Delivery) -> Attempt:
    """Return the attempt; raise Rejected where the message is no event of a job with a target."""
    members, _ = parse_object(delivery.body, exact="")
    try:
        event = _Event.model_validate(members)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise Rejected([Problem(where or "body", problem["msg"])]) from None
    run, headers = event.run, _headers(delivery)
    waits = DEFAULT_MAX_DELAY if run.deadline is None else (run.deadline - event.emitted_at).total_seconds()
    return Attempt(
        str(event.event_id), run.attempt, str(event.job_id), event.job_type, members, delivery.body,
        event.target or {}, run.timeout, run.max_delay, waits, headers.get("traceparent"),
        headers.get("tracestate"),
    )


def _headers(delivery: Delivery) -> dict[str, str]:
    properties = delivery.properties
    if isinstance(properties, UnreadableProperties) or not properties.headers:
        return {}
    return {name: value for name, value in properties.headers.items() if isinstance(value, str)}
