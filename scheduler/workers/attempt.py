"""A ScheduleDue as a worker reads it, and the ScheduleResult that it writes of it."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # undocumented, stable
from typing import Any, NoReturn

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import ResultStatus
from scheduler.domain.messages.base import UUID_PATTERN
from scheduler.domain.messages.runs import WEEK
from scheduler.domain.strict_json import split_member
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.rabbit.delivery_parser import Delivery, UnreadableProperties
from scheduler.workers.outcome import WorkOutcome

DEFAULT_TIMEOUT = 300.0
DEFAULT_MAX_DELAY = 3600.0
_MOST = 2**31 - 1
_UUID = re.compile(UUID_PATTERN, re.ASCII | re.IGNORECASE).fullmatch
_HALF_A_PAIR = re.compile(rb"\xed[\xa0-\xbf]")


@dataclass(slots=True, eq=False)
class WorkerAttempt:
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
    target_text: str  # as it came
    rest: bytes  # the event without it, else as it came
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str = DEFAULT_TENANT

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from any other."""
        return self.event_id, self.number

    def says(self, outcome: WorkOutcome, worker: str, started_at: datetime | None = None) -> bytes:
        """Write how it ended, or that it is put off."""
        fields = outcome.fields()
        if started_at is not None:
            fields["started_at"], fields["finished_at"] = rfc3339(started_at), rfc3339(datetime.now(UTC))
        return self._written(fields, worker)

    def running(self, worker: str, started_at: datetime, **fields: Any) -> bytes:
        """Write that it is at work; `fields` may be a heartbeat, a progress or the newest output."""
        about = {"status": ResultStatus.RUNNING.value, "started_at": rfc3339(started_at)}
        return self._written(about | fields, worker)

    def _written(self, fields: dict[str, Any], worker: str) -> bytes:
        whole = {"event_id": self.event_id, "attempt": self.number, "worker": worker, **fields}
        written = _json(whole)
        # What Postgres cannot hold is written out: an endpoint or a program may have said anything.
        unclean = b"\\u0000" in written or (b"\xed" in written and _HALF_A_PAIR.search(written))
        return _json(_clean(whole)) if unclean else written


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} is not JSON")


# Not as ASCII: an escape has six bytes, and what is kept of an output is counted in bytes.
# json.dumps makes such an encoder each time, which takes as long as what it then does.
_parts = c_make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)


def _json(value: Any) -> bytes:
    return "".join(_parts(value, 0)).encode("utf-8", "surrogatepass")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return value


def read_attempt(delivery: Delivery) -> WorkerAttempt:
    """Return the attempt; raise Rejected where the message is no event of a job with a target."""
    event, target_text, rest = split_member(delivery.body, "target")
    run = event.get("run")
    if not isinstance(run, dict):
        raise Rejected([Problem("run", "is required: only tracked jobs have work for a worker")])
    number = run.get("attempt")
    if type(number) is not int or not 1 <= number <= _MOST:
        raise Rejected([Problem("run.attempt", "must be a whole number from 1")])
    job_type, target = event.get("job_type"), event.get("target")
    if not isinstance(job_type, str) or not isinstance(target, dict):
        raise Rejected([Problem("target", "is required, and job_type")])
    tenant = event.get("tenant", DEFAULT_TENANT)
    if not isinstance(tenant, str):
        raise Rejected([Problem("tenant", "must be a text")])
    headers = _headers(delivery)
    return WorkerAttempt(
        _id(event, "event_id"), number, _id(event, "job_id"), job_type, event, delivery.body, target,
        _seconds(run, "timeout", DEFAULT_TIMEOUT), _seconds(run, "max_delay", DEFAULT_MAX_DELAY),
        _start_timeout(event.get("emitted_at"), run.get("deadline")), target_text, rest,
        headers.get("traceparent"), headers.get("tracestate"), tenant,
    )


def _id(event: dict[str, Any], name: str) -> str:
    found = event.get(name)
    if not isinstance(found, str) or not _UUID(found):
        raise Rejected([Problem(name, "must be a UUID")])
    return found.lower()


def _seconds(run: dict[str, Any], name: str, default: float) -> float:
    found = run.get(name, default)
    return float(found) if type(found) in (int, float) and 0 <= found <= WEEK else default


def _start_timeout(emitted_at: Any, deadline: Any) -> float:
    """Return the seconds between the two, both by the database's clock."""
    try:
        waits = (datetime.fromisoformat(deadline) - datetime.fromisoformat(emitted_at)).total_seconds()
    except (TypeError, ValueError):
        return DEFAULT_MAX_DELAY
    return max(waits, 1.0)


def _headers(delivery: Delivery) -> dict[str, str]:
    properties = delivery.properties
    if isinstance(properties, UnreadableProperties) or not properties.headers:
        return {}
    return {name: value for name, value in properties.headers.items() if isinstance(value, str)}
