"""Apply dead letters to the database instead of publishing them again.

With SCHEDULER_TENANT_BY=user_id the tenant of a command is its AMQP user. A message that the API publishes has
the API's user, and a header that names another one could come from any publisher. The user in a dead letter was
written by the consumer or verified by the broker.
"""

from copy import copy
from datetime import timedelta

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_results import record_results
from scheduler.commands.decide_commands import LOCKED, MessageOutcome
from scheduler.commands.operator_commands import RowLocked
from scheduler.commands.parse_deliveries import parse_command_delivery, parse_result_delivery
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.errors import Rejected
from scheduler.domain.messages import COMMAND_MODELS, ScheduleResult
from scheduler.domain.names import COMMANDS_EXCHANGE
from scheduler.postgres.connection import Connection
from scheduler.rabbit.address import user
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.rabbit.dead_letter_queue import NotReplayable
from scheduler.rabbit.delivery_parser import Delivery, decoded
from scheduler.settings import Settings


def is_applied(letter: DeadLetter, settings: Settings) -> bool:
    """Return whether to apply a letter here: it is a command or a result whose AMQP user is its tenant."""
    is_command = letter.routing_key in COMMAND_MODELS or letter.routing_key == ScheduleResult.kind
    return settings.tenant_by == "user_id" and letter.exchange == COMMANDS_EXCHANGE and is_command


def apply_letter(connection: Connection, letter: DeadLetter, settings: Settings, soon: timedelta) -> None:
    """Apply a rejected command or result as its original user; raise NotReplayable if it is rejected again."""
    raw = letter.original_properties()
    properties = copy(decoded(raw))
    properties.user_id = letter.user_id
    delivery = Delivery(0, letter.routing_key, properties, letter.body, redelivered=False, size=0, raw=raw)
    own_users = [*map(user, settings.amqp_urls), *settings.worker_users]
    tenancy = Tenancy.of(settings.tenant_by, own_users, settings.tenant_routes)
    limit = settings.max_payload_bytes
    outcome: MessageOutcome
    if letter.routing_key == ScheduleResult.kind:
        result = parse_result_delivery(delivery, max_payload_bytes=limit, tenancy=tenancy)
        outcome = result if isinstance(result, Rejected) else record_results(connection, [result], soon)[0]
    else:
        command = parse_command_delivery(delivery, max_payload_bytes=limit, tenancy=tenancy)
        outcome = command if isinstance(command, Rejected) else apply_commands(connection, [command], soon)[0]
    if isinstance(outcome, Rejected):
        raise NotReplayable(f"it is rejected again: {outcome}")
    if outcome is LOCKED:
        raise RowLocked("what the message is about")
