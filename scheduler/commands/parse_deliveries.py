"""Parse deliveries into commands, results and worker reports, or reject them with all reasons."""

from functools import lru_cache
from typing import Any

from scheduler.commands.tenancy import Tenancy
from scheduler.domain.caller import Caller, Via
from scheduler.domain.errors import INTERNAL_ERROR, Problem, Rejected
from scheduler.domain.handler_catalogue import HANDLERS_HEADER, read_catalogue
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.message_parser import parse_command, parse_result, parse_worker
from scheduler.domain.messages import ScheduleTrigger, ScheduleWorker
from scheduler.domain.messages.workers import OFFER_TENANTS_HEADER
from scheduler.domain.names import RESULTS_QUEUE
from scheduler.domain.offer_tenants import read_offer_tenants
from scheduler.domain.runs.marker import MARKER_HEADER, Marker, read_marker
from scheduler.domain.runs.result import Result, WorkerReport
from scheduler.domain.trace_context import trace_context
from scheduler.domain.worker_facts import FACTS_HEADER, read_facts
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.delivery_parser import Delivery, UnreadableProperties

log = get_logger(__name__)

BY_FIELD = Tenancy()
_TRIGGER, _WORKER = ScheduleTrigger.kind, ScheduleWorker.kind  # an attribute of a model's class is slow to read
_untrusted = ThrottledWarning(log, "worker liveness message ignored: its user is not a worker")


def parse_command_delivery(
    delivery: Delivery, *, max_payload_bytes: int, tenancy: Tenancy = BY_FIELD
) -> Incoming | Rejected:
    """Return the command, or Rejected if it can never succeed. Never raises."""
    properties = delivery.properties
    if type(properties) is UnreadableProperties:
        return _unreadable(properties)
    try:
        incoming = parse_command(
            delivery.routing_key, delivery.body, message_type=properties.type, max_payload_bytes=max_payload_bytes
        )
        if tenancy.by_user:
            tenant = incoming.tenant if "tenant" in incoming.command.model_fields_set else None
            incoming.tenant = tenancy.of_command(tenant, properties.user_id)
        if tenancy.own_routes:
            tenancy.check_route(incoming)
    except Exception as error:  # noqa: BLE001 - logged in _rejected
        return _rejected(error)
    if properties.correlation_id is not None:
        incoming.correlation_id = _storable(properties.correlation_id)
    if delivery.routing_key == _TRIGGER and incoming.command.issued_at is None:
        incoming.message_id = _storable(properties.message_id)
    if properties.user_id:
        incoming.caller = _caller(properties.user_id)
    headers = properties.headers
    if headers:
        incoming.traceparent, incoming.tracestate = trace_context(
            headers.get("traceparent"), headers.get("tracestate")
        )
    return incoming


def parse_result_delivery(
    delivery: Delivery, *, max_payload_bytes: int, tenancy: Tenancy = BY_FIELD  # noqa: ARG001 - same signature as the other
) -> Result | WorkerReport | Marker | Rejected:
    """Return the result, worker report or marker, or Rejected if it can never be recorded."""
    properties = delivery.properties
    if type(properties) is UnreadableProperties:
        return _unreadable(properties)
    try:
        if delivery.routing_key == RESULTS_QUEUE and delivery.properties.headers:
            marker = read_marker(delivery.properties.headers.get(MARKER_HEADER))
            if marker is not None:
                return marker
        if delivery.routing_key == _WORKER:
            worker = parse_worker(delivery.body, message_type=delivery.properties.type)
            headers = delivery.properties.headers or {}
            trusted = tenancy.trusts_worker(delivery.properties.user_id)
            if not trusted:
                _untrusted.warning(user_id=delivery.properties.user_id,
                                   do="add the broker user to SCHEDULER_WORKER_USERS, or upgrade the worker")
            return WorkerReport(worker, read_offer_tenants(headers.get(OFFER_TENANTS_HEADER), worker.offers),
                                read_catalogue(headers.get(HANDLERS_HEADER)),
                                read_facts(headers.get(FACTS_HEADER)), trusted)
        result = parse_result(delivery.routing_key, delivery.body, message_type=delivery.properties.type)
        result.tenant = tenancy.of_result(result.tenant, delivery.properties.user_id)
        return result  # noqa: TRY300 - every line above may raise Rejected
    except Exception as error:  # noqa: BLE001 - logged in _rejected
        return _rejected(error)


@lru_cache(maxsize=256)
def _caller(user: str) -> Caller:
    """Return the AMQP user, verified by the broker."""
    return Caller(_storable(user), Via.AMQP)


def _unreadable(properties: UnreadableProperties) -> Rejected:
    """Reject a message whose properties cannot be parsed."""
    return Rejected([Problem("headers", f"cannot be read ({properties.problem}); are times in seconds?")])


def _rejected(error: Exception) -> Rejected:
    if isinstance(error, Rejected):
        return error.without_traceback()
    # A bug must not crash the consumer on every redelivery: dead-letter the message.
    log.error("command cannot be read", problem=f"{type(error).__name__}: {error}"[:500],
              do="report it, with the message in scheduler_dead")
    return Rejected([Problem("body", f"cannot be read: {INTERNAL_ERROR}")])


def _storable(value: Any) -> str | None:
    """Return the property if a text column can store it unchanged, else None."""
    return value if isinstance(value, str) and "\x00" not in value else None
