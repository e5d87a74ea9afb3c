"""Parse ScheduleDue events with a target, and write their ScheduleResults."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # undocumented, stable
from typing import Any, NoReturn

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.message_base import UUID_PATTERN
from scheduler.domain.messages import ResultStatus
from scheduler.domain.messages.runs import WEEK
from scheduler.domain.strict_json import split_member
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.rabbit.delivery_parser import Delivery, UnreadableProperties
from scheduler.workers.outcome import WorkOutcome

DEFAULT_TIMEOUT = 300.0
DEFAULT_MAX_DELAY = 3600.0
_MOST = 2**31 - 1
_UUID = re.compile(UUID_PATTERN, re.ASCII | re.IGNORECASE).fullmatch
_LONE_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


@dataclass(slots=True, eq=False)
class WorkerAttempt:
    """One attempt to execute an event's target."""

    event_id: str
    number: int
    job_id: str
    job_type: str
    event: dict[str, Any]  # the whole ScheduleDue
    body: bytes  # as received
    target: dict[str, Any]  # `webhook` or `command`; not validated yet
    timeout: float  # seconds from its start
    max_delay: float
    start_timeout: float  # seconds from its emission until it must have started
    target_text: str  # as received
    rest: bytes  # the event without its target, otherwise as received
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str = DEFAULT_TENANT

    @property
    def key(self) -> tuple[str, int]:
        """Unique key of the attempt."""
        return self.event_id, self.number

    def result(self, outcome: WorkOutcome, worker: str, started_at: datetime | None = None) -> bytes:
        """Return the ScheduleResult of an outcome."""
        fields = outcome.fields()
        if started_at is not None:
            fields["started_at"], fields["finished_at"] = rfc3339(started_at), rfc3339(datetime.now(UTC))
        return self._result(fields, worker)

    def running(self, worker: str, started_at: datetime, **fields: Any) -> bytes:
        """Return a ScheduleResult `running`; `fields` may be a heartbeat, a progress or the newest output."""
        status = {"status": ResultStatus.RUNNING.value, "started_at": rfc3339(started_at)}
        return self._result(status | fields, worker)

    def _result(self, fields: dict[str, Any], worker: str) -> bytes:
        result = {"event_id": self.event_id, "attempt": self.number, "worker": worker, **fields}
        body = _json(result)
        # Escape what Postgres cannot store: the output of an endpoint or a program may contain it.
        invalid = b"\\u0000" in body or (b"\xed" in body and _LONE_SURROGATE.search(body))
        return _json(_escape(result)) if invalid else body


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} is not JSON")


# Not ASCII: an escape has six bytes, and the size limit of an output is in bytes.
# json.dumps would build an encoder for each call, which takes as long as the encoding itself.
_parts = c_make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)


def _json(value: Any) -> bytes:
    return "".join(_parts(value, 0)).encode("utf-8", "surrogatepass")


def _escape(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, dict):
        return {_escape(key): _escape(item) for key, item in value.items()}
    return value


def read_attempt(delivery: Delivery) -> WorkerAttempt:
    """Parse an event. Raises Rejected if it does not belong to a job with a target."""
    event, target_text, rest = split_member(delivery.body, "target")
    run = event.get("run")
    if not isinstance(run, dict):
        raise Rejected([Problem("run", "is required: a job with a target is tracked")])
    number = run.get("attempt")
    if type(number) is not int or not 1 <= number <= _MOST:
        raise Rejected([Problem("run.attempt", "must be a whole number from 1")])
    job_type, target = event.get("job_type"), event.get("target")
    if not isinstance(job_type, str) or not isinstance(target, dict):
        raise Rejected([Problem("target", "and job_type are required")])
    tenant = event.get("tenant", DEFAULT_TENANT)
    if not isinstance(tenant, str):
        raise Rejected([Problem("tenant", "must be a string")])
    headers = _headers(delivery)
    return WorkerAttempt(
        _id(event, "event_id"), number, _id(event, "job_id"), job_type, event, delivery.body, target,
        _seconds(run, "timeout", DEFAULT_TIMEOUT), _seconds(run, "max_delay", DEFAULT_MAX_DELAY),
        _start_timeout(event.get("emitted_at"), run.get("deadline")), target_text, rest,
        headers.get("traceparent"), headers.get("tracestate"), tenant,
    )


def _id(event: dict[str, Any], name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not _UUID(value):
        raise Rejected([Problem(name, "must be a UUID")])
    return value.lower()


def _seconds(run: dict[str, Any], name: str, default: float) -> float:
    value = run.get(name, default)
    return float(value) if type(value) in (int, float) and 0 <= value <= WEEK else default


def _start_timeout(emitted_at: Any, deadline: Any) -> float:
    """Return the seconds between the two; both are times of the database's clock."""
    try:
        seconds = (datetime.fromisoformat(deadline) - datetime.fromisoformat(emitted_at)).total_seconds()
    except (TypeError, ValueError):
        return DEFAULT_MAX_DELAY
    return max(seconds, 1.0)


def _headers(delivery: Delivery) -> dict[str, str]:
    properties = delivery.properties
    if isinstance(properties, UnreadableProperties) or not properties.headers:
        return {}
    return {name: value for name, value in properties.headers.items() if isinstance(value, str)}
