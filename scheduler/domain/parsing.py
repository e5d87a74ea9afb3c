"""Turns the bytes of a command into a command, or says everything that is wrong with them."""

import json
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import COMMAND_MODELS, Command
from scheduler.domain.strict_json import parse_object

# The other fields together stay well under this; a body beyond it is refused before it is parsed.
_OTHER_FIELDS = 64 * 1024
_READABLE = 4 * 1024 * 1024
_HYPHENATED = 36  # characters: of a UUID's spellings only the usual one, in capitals or not, has so many


def parse_command(
    routing_key: str, body: bytes, *, max_payload_bytes: int, message_type: str | None = None
) -> Incoming:
    """Return the command with the exact text of its payload; raise Rejected with every problem found."""
    model = _model(routing_key, message_type)
    if len(body) > max_payload_bytes + _OTHER_FIELDS:
        raise Rejected([Problem("payload", f"the message has {len(body):,} bytes; a payload may have at "
                                           f"most {max_payload_bytes:,} (SCHEDULER_MAX_PAYLOAD_BYTES)")])
    members, source = parse_object(body, exact="payload")
    problems = []
    payload = "{}" if source is None else source
    if len(payload) * 4 > max_payload_bytes and len(payload.encode()) > max_payload_bytes:
        problems.append(Problem("payload", f"has {len(payload.encode()):,} bytes; it may have at most "
                                           f"{max_payload_bytes:,} (SCHEDULER_MAX_PAYLOAD_BYTES)"))
    if isinstance(members.get("payload"), dict):
        members["payload"] = {}  # it is the host's own affair: its text is kept, and no object made of it
    try:
        command = model.model_validate(members)
    except ValidationError as error:
        problems.extend(_problems(error, model))
    if problems:
        raise Rejected(problems)
    written: str = members["id"]
    return Incoming(command, written.lower() if len(written) == _HYPHENATED else str(command.id), payload)


def _model(routing_key: str, message_type: str | None) -> type[Command]:
    model = COMMAND_MODELS.get(routing_key)
    if model is None:
        known = ", ".join(COMMAND_MODELS)
        raise Rejected([Problem("routing_key", f"{routing_key[:80]!r} is not a command; use one of {known}")])
    if message_type and message_type not in (model.__name__, model.kind):
        raise Rejected([Problem("type", f"{message_type[:80]!r} does not belong to the routing key "
                                        f"{routing_key!r}; leave it out or use {model.__name__!r}")])
    return model


def claimed_id(body: bytes) -> str | None:
    """Return the id that a rejected command names, where one can be read."""
    try:
        found = json.loads(body)["id"] if len(body) <= _READABLE else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found[:200].encode("utf-8", "replace").decode() if isinstance(found, str) else None


def _problems(error: ValidationError, model: type[Command]) -> list[Problem]:
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_input=False):
        # A union's branch name is our business, not the host's.
        field = str(detail["loc"][0]) if detail["loc"] else "body"
        found.setdefault(_printable(field), _words(detail, field, model))
    return [Problem(field, problem) for field, problem in found.items()]


def _words(detail: Any, field: str, model: type[Command]) -> str:
    match detail["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            near = get_close_matches(field, model.model_fields, n=1, cutoff=0.5)
            return "is not a field of this command" + (f"; did you mean {near[0]!r}?" if near else "")
        case "value_error":
            return str(detail["ctx"]["error"])
        case "string_type" | "float_type" if field == "every":
            return "must be an ISO 8601 duration like PT15M, or a number of seconds"
        case "uuid_type":
            return "must be a string: a UUID"
        case "uuid_parsing":
            return "must be a UUID, like 7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"
        case "dict_type":
            return "must be a JSON object"
        case "string_type":
            return "must be a string"
        case "float_type":
            return "must be a number"
        case "enum":
            return f"must be {detail['ctx']['expected']}"
        case _:
            message: str = detail["msg"]
            return message[:1].lower() + message[1:]


def _printable(field: str) -> str:
    return field[:200].encode("ascii", "backslashreplace").decode()
