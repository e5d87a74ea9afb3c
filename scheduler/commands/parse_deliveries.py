"""From a delivery to a command with what came beside its body, or to every reason why not."""

from functools import lru_cache
from typing import Any

from scheduler.commands.tenancy import Tenancy
from scheduler.domain.caller import Caller, Via
from scheduler.domain.errors import Problem, Reason, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.message_parser import parse_command, parse_result, parse_worker
from scheduler.domain.messages import ScheduleTrigger, ScheduleWorker
from scheduler.domain.messages.workers import OFFER_TENANTS_HEADER
from scheduler.domain.names import RESULTS_QUEUE
from scheduler.domain.offer_tenants import read_offer_tenants
from scheduler.domain.runs.marker import MARKER_HEADER, Marker, read_marker
from scheduler.domain.runs.result import Result, WorkerReport
from scheduler.domain.trace_context import trace_context
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.delivery_parser import Delivery, UnreadableProperties
from scheduler.rabbit.topology import DELIVERY_LIMIT

log = get_logger(__name__)

CRASHED = f"was delivered {DELIVERY_LIMIT} times and never answered: handling it ends the consumer"
BY_FIELD = Tenancy()
_untrusted = ThrottledWarning(log, "worker liveness message ignored: its user is not a worker")


def read_command(
    delivery: Delivery, *, max_payload_bytes: int, tenancy: Tenancy = BY_FIELD
) -> Incoming | Rejected:
    """Return the command, or why it can never succeed; whatever a host sent, nothing is raised."""
    properties = delivery.properties
    if refusal := _refused(delivery):
        return refusal
    try:
        incoming = parse_command(
            delivery.routing_key, delivery.body, message_type=properties.type, max_payload_bytes=max_payload_bytes
        )
        if tenancy.by_user:
            said = incoming.tenant if "tenant" in incoming.command.model_fields_set else None
            incoming.tenant = tenancy.of_command(said, properties.user_id)
        if tenancy.own_routes:
            tenancy.check_route(incoming)
    except Exception as error:  # noqa: BLE001 - see there
        return _rejected(error)
    if properties.correlation_id is not None:
        incoming.correlation_id = _storable(properties.correlation_id)
    if delivery.routing_key == ScheduleTrigger.kind and incoming.command.issued_at is None:
        incoming.message_id = _storable(properties.message_id)
    if properties.user_id:
        incoming.caller = _caller(properties.user_id)
    headers = properties.headers
    if headers:
        incoming.traceparent, incoming.tracestate = trace_context(
            headers.get("traceparent"), headers.get("tracestate")
        )
    return incoming


def read_result(
    delivery: Delivery, *, max_payload_bytes: int, tenancy: Tenancy = BY_FIELD  # noqa: ARG001 - as commands
) -> Result | WorkerReport | Marker | Rejected:
    """Return the result, or what a worker says of itself, or a marker, or why it can never be recorded."""
    if refusal := _refused(delivery):
        return refusal
    try:
        if delivery.routing_key == RESULTS_QUEUE and delivery.properties.headers:
            marker = read_marker(delivery.properties.headers.get(MARKER_HEADER))
            if marker is not None:
                return marker
        if delivery.routing_key == ScheduleWorker.kind:
            worker = parse_worker(delivery.body, message_type=delivery.properties.type)
            header = (delivery.properties.headers or {}).get(OFFER_TENANTS_HEADER)
            trusted = tenancy.trusts_worker(delivery.properties.user_id)
            if not trusted:
                _untrusted.warning(user_id=delivery.properties.user_id,
                                   do="add the broker user to SCHEDULER_WORKER_USERS, or upgrade the worker")
            return WorkerReport(worker, read_offer_tenants(header, worker.offers), trusted)
        result = parse_result(delivery.routing_key, delivery.body, message_type=delivery.properties.type)
        result.tenant = tenancy.of_result(result.tenant, delivery.properties.user_id)
        return result  # noqa: TRY300 - all of this may be refused
    except Exception as error:  # noqa: BLE001 - see there
        return _rejected(error)


@lru_cache(maxsize=256)
def _caller(user: str) -> Caller:
    """Return the AMQP user, whom the broker has verified."""
    return Caller(_storable(user), Via.AMQP)


def _refused(delivery: Delivery) -> Rejected | None:
    """Say why a message is not even read."""
    if delivery.deliveries_before >= DELIVERY_LIMIT - 1:
        return Rejected([Problem("body", CRASHED)], Reason.REDELIVERED)
    properties = delivery.properties
    if isinstance(properties, UnreadableProperties):
        return Rejected([Problem("headers", f"cannot be read ({properties.problem}); are times in seconds?")])
    return None


def _rejected(error: Exception) -> Rejected:
    if isinstance(error, Rejected):
        return error.without_traceback()
    # A case that nobody thought of must not end the consumer again and again: the message is kept aside.
    log.error("command cannot be read", problem=f"{type(error).__name__}: {error}"[:500],
              do="report it, with the message in scheduler_dead")
    return Rejected([Problem("body", "cannot be read: an error of the scheduler's own, see its log")])


def _storable(value: Any) -> str | None:
    """Return a property that can be kept in a text column and handed back as it is."""
    return value if isinstance(value, str) and "\x00" not in value else None
