"""Parse commands, results and worker messages; reject invalid ones with every problem."""

import json
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar, get_args
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from scheduler.domain.calendars import CALENDAR_BYTES, check_content, reject_many_dates
from scheduler.domain.common_request import RARE_FIELDS, validate_common
from scheduler.domain.errors import MAX_PROBLEMS, Problem, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import (
    COMMAND_MODELS,
    Command,
    ContractMessage,
    ScheduleCalendar,
    ScheduleRequest,
    ScheduleResult,
    ScheduleWorker,
)
from scheduler.domain.runs.result import Result, truncate_result
from scheduler.domain.strict_json import parse_object
from scheduler.domain.tenants import CALENDAR_NAME_PATTERN

# More than all other fields need; a larger body is rejected before it is parsed.
_OTHER_FIELDS = 64 * 1024
_READABLE = 4 * 1024 * 1024
RESULT_BYTES = 16 * 1024 * 1024  # a longer `output` is truncated, not rejected
_IDS = ("id", "event_id")
WORKER_BYTES = 1024 * 1024
MAX_FIELDS = 100  # per message, on its top level; commands have far fewer
_MAX_DETAILS = 200  # pydantic errors: a list has one per item
_MAX_HINTS = 3  # the search for similar names is the most expensive part of a rejection
_MAX_HINTED = 64  # characters in a misspelled field
_HYPHENATED = 36  # characters: only the hyphenated form of a UUID has this length


def parse_command(
    routing_key: str, body: bytes, *, max_payload_bytes: int, message_type: str | None = None,
    fixed_fields: Mapping[str, str] = MappingProxyType({}), defaults: Mapping[str, str] = MappingProxyType({}),
) -> Incoming:
    """Return the command and the source text of its payload. Raises Rejected with every problem.

    `fixed_fields`, such as the id in a path, are added to the body, which must not contradict them.
    """
    model = _model(COMMAND_MODELS, routing_key, message_type)
    if model is ScheduleCalendar:
        if len(body) > CALENDAR_BYTES:
            raise Rejected([Problem("body", f"has {len(body):,} bytes; the maximum is {CALENDAR_BYTES:,}")])
    elif len(body) > max_payload_bytes + _OTHER_FIELDS:
        raise Rejected([Problem("payload", f"the message has {len(body):,} bytes; the maximum payload "
                                           f"is {max_payload_bytes:,} (SCHEDULER_MAX_PAYLOAD_BYTES)")])
    members, source = parse_object(body, exact="payload")
    if len(members) > MAX_FIELDS:
        _reject_many_fields(members, model)
    problems = _add_fixed_fields(members, fixed_fields) if fixed_fields else []
    more = 0
    if defaults:
        members = {**defaults, **members}
    payload = "{}" if source is None else source
    if len(payload) * 4 > max_payload_bytes and len(payload.encode()) > max_payload_bytes:
        problems.append(Problem("payload", f"has {len(payload.encode()):,} bytes; the maximum is "
                                           f"{max_payload_bytes:,} (SCHEDULER_MAX_PAYLOAD_BYTES)"))
    if isinstance(members.get("payload"), dict):
        members["payload"] = {}  # only its text is used
    if model is ScheduleCalendar:
        reject_many_dates(members)
    validate, id_field = _compiled(model)
    if model is ScheduleRequest and RARE_FIELDS.isdisjoint(members):
        validate = validate_common
    try:
        command = validate(members)
    except ValidationError as error:
        invalid, more = _problems(error, model)
        problems.extend(invalid)
    if problems:
        raise Rejected(problems, more=more)
    if model is ScheduleCalendar:
        return _incoming_calendar(command, members)
    return Incoming(command, _id(members[id_field]), payload, tenant=command.tenant)


def _incoming_calendar(command: Command, members: Mapping[str, Any]) -> Incoming:
    assert isinstance(command, ScheduleCalendar)  # noqa: S101 - the caller's choice
    check_content(members)
    return Incoming(command, calendar_about(command.name), tenant=command.tenant)


def calendar_about(name: str) -> str:
    """Return the key of the calendars with one name, which differs from every job id."""
    return f"calendar/{name}"


def parse_result(
    routing_key: str, body: bytes, *, message_type: str | None = None,
    fixed_fields: Mapping[str, str] = MappingProxyType({}),
) -> Result:
    """Return a result, truncated to the limits. Raises Rejected with every problem."""
    model = _model(_RESULTS, routing_key, message_type)
    if len(body) > RESULT_BYTES:
        raise Rejected([Problem("body", f"has {len(body):,} bytes; the maximum is {RESULT_BYTES:,}")])
    members, output = parse_object(body, exact="output")
    if len(members) > MAX_FIELDS:
        _reject_many_fields(members, model)
    members["output"] = None  # only its text is used
    if fixed_fields and (problems := _add_fixed_fields(members, fixed_fields)):
        raise Rejected(problems)
    try:
        result = _validator(model)(members)
    except ValidationError as error:
        raise _rejected(error, model) from None
    return truncate_result(result, _id(members["event_id"]), output)


def parse_worker(body: bytes, *, message_type: str | None = None) -> ScheduleWorker:
    """Return a worker's heartbeat message. Raises Rejected with every problem."""
    model = _model({ScheduleWorker.kind: ScheduleWorker}, ScheduleWorker.kind, message_type)
    if len(body) > WORKER_BYTES:
        raise Rejected([Problem("body", f"has {len(body):,} bytes; the maximum is {WORKER_BYTES:,}")])
    members, _ = parse_object(body, exact="")
    if len(members) > MAX_FIELDS:
        _reject_many_fields(members, model)
    try:
        return model.model_validate(members)
    except ValidationError as error:
        raise _rejected(error, model) from None


def _reject_many_fields(members: Collection[str], model: type[ContractMessage]) -> None:
    """Reject a message with more than MAX_FIELDS fields before checking each of them."""
    fields = model.model_fields
    unknown = [name for name in members if name not in fields]
    problems = [Problem(_printable(name), _unknown(name, model, hint=index < _MAX_HINTS))
                for index, name in enumerate(islice(unknown, MAX_PROBLEMS))]
    raise Rejected(problems, more=len(unknown) - len(problems))


def _add_fixed_fields(members: dict[str, Any], fixed_fields: Mapping[str, str]) -> list[Problem]:
    """Add the fixed fields; return a problem for each that the body contradicts."""
    problems = []
    for name, value in fixed_fields.items():
        given = members.get(name, value)
        if given != value and not (name in _IDS and isinstance(given, str) and given.lower() == value):
            problems.append(Problem(name, f"must be {value}, or left out"))
        members[name] = value
    return problems


def _id(text: str) -> str:
    """Return a valid UUID in Postgres's format."""
    return text.lower() if len(text) == _HYPHENATED else str(UUID(text))


Model = TypeVar("Model", bound=ContractMessage)


@lru_cache(maxsize=64)
def _validator(model: type[Model]) -> Callable[[Any], Model]:
    """Return a model's compiled validator: model_validate takes a quarter longer."""
    validate: Callable[[Any], Model] = TypeAdapter(model).validator.validate_python
    return validate


@lru_cache(maxsize=64)
def _compiled(model: type[Command]) -> tuple[Callable[[Any], Command], str]:
    """Return a command's validator and the field with its id: reading an attribute of a model's class is slow."""
    return _validator(model), model.about


_RESULTS = {ScheduleResult.kind: ScheduleResult}


def _model(models: Mapping[str, type[Model]], routing_key: str, message_type: str | None) -> type[Model]:
    model = models.get(routing_key)
    if model is None:
        kinds = ", ".join(models)
        raise Rejected([Problem("routing_key", f"{routing_key[:80]!r} is not a command; use one of {kinds}")])
    if message_type and message_type not in (model.__name__, routing_key):
        raise Rejected([Problem("type", f"{message_type[:80]!r} does not match the routing key "
                                        f"{routing_key!r}; leave it out or use {model.__name__!r}")])
    return model


def name_in_body(body: bytes) -> str | None:
    """Return the calendar's name in a rejected command's body, if it is readable."""
    return _member_in_body(body, "name", "name")


def id_in_body(body: bytes) -> str | None:
    """Return the job or run id in a rejected command's body, if it is readable."""
    return _member_in_body(body, "id", "event_id")


def _member_in_body(body: bytes, name: str, other_name: str) -> str | None:
    try:
        members = json.loads(body) if len(body) <= _READABLE else {}
        value = members.get(name, members.get(other_name))
    except (ValueError, AttributeError, RecursionError):
        return None
    return value[:200].encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _rejected(error: ValidationError, model: type[ContractMessage]) -> Rejected:
    problems, more = _problems(error, model)
    return Rejected(problems, more=more)


def _problems(error: ValidationError, model: type[ContractMessage]) -> tuple[list[Problem], int]:
    """Return the first problems, one per field, and the number of others."""
    problems: dict[str, str] = {}
    hints = _MAX_HINTS
    details = error.errors(include_url=False, include_input=False)
    for index, detail in enumerate(details):
        if len(problems) == MAX_PROBLEMS or index == _MAX_DETAILS:
            return _listed(problems), len(details) - index
        path, inner = _path(detail["loc"], model)
        name = path[-1] if path else "body"
        if detail["type"] == "extra_forbidden":
            problem = _unknown(name, inner, hint=hints > 0)
            hints -= 1
        else:
            problem = _describe(detail, name)
        if not path and detail["type"] == "value_error":  # from a model validator, which names the field
            field, _, problem = problem.partition(": ")
            path = [field]
        problems.setdefault(_printable(".".join(path) or "body"), problem)
    return _listed(problems), 0


def _listed(problems: Mapping[str, str]) -> list[Problem]:
    return [Problem(field, problem) for field, problem in problems.items()]


def _unknown(name: str, model: type[ContractMessage], *, hint: bool) -> str:
    """Return the problem of an unknown field, with a similar field as a hint."""
    close = hint and len(name) <= _MAX_HINTED
    near = get_close_matches(name, model.model_fields, n=1, cutoff=0.5) if close else []
    return f"is not a field of {_called(model)}" + (f"; did you mean {near[0]!r}?" if near else "")


def _path(loc: tuple[int | str, ...], model: type[ContractMessage]) -> tuple[list[str], type[ContractMessage]]:
    """Return the path of a problem and the model of its last field.

    pydantic adds the names of union branches to a location; the path leaves them out.
    """
    path: list[str] = []
    for part in loc:
        if path:
            nested = _nested(model, path[-1])
            if nested is None:
                break
            model = nested
        path.append(str(part))
    return path, model


def _nested(model: type[ContractMessage], field: str) -> type[ContractMessage] | None:
    """Return the model of a field's value, if it has one."""
    info = model.model_fields.get(field)
    types = () if info is None else (info.annotation, *get_args(info.annotation))
    return next((type_ for type_ in types if isinstance(type_, type) and issubclass(type_, ContractMessage)), None)


_MESSAGES = {
    "missing": "is required",
    "uuid_type": "must be a string: a UUID",
    "uuid_parsing": "must be a UUID, like 7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11",
    "dict_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "string_type": "must be a string",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
}
_PATTERNS = {  # descriptions in place of regular expressions
    "tenant": "1 to 100 of A-Z a-z 0-9 . _ -",
    "route": "words of A-Z a-z 0-9 _ - with dots between them, like mails.fast",
    "name": "1 to 100 of A-Z a-z 0-9 _ -",
    "from": "a time of day as HH:MM, from 00:00 to 23:59",
    "to": "a time of day as HH:MM, from 00:00 to 23:59",
}
_DOTTED_NAME = "1 to 100 of A-Z a-z 0-9 . _ -"


def describe_error(detail: Any, field: str) -> str:
    """Return the problem of a value in a path or a query."""
    if detail["type"] == "extra_forbidden":
        return "is not a known parameter"
    return _describe(detail, field)


def _describe(detail: Any, field: str) -> str:
    kind = detail["type"]
    match kind:
        case "value_error":
            return str(detail["ctx"]["error"])
        case "string_type" | "float_type" if field == "every":
            return "must be an ISO 8601 duration like PT15M, or a number of seconds"
        case "literal_error" | "tuple_type" if field == "backoff":
            return "must be exponential, linear, fixed, or a list of seconds"
        case "string_pattern_mismatch" if detail["ctx"]["pattern"] == CALENDAR_NAME_PATTERN and field != "tenant":
            return f"must be {_DOTTED_NAME}"
        case "string_pattern_mismatch" if field in _PATTERNS:
            return f"must be {_PATTERNS[field]}"
        case "enum":
            return f"must be {detail['ctx']['expected']}"
    message: str = detail["msg"]
    return _MESSAGES.get(kind) or message[:1].lower() + message[1:]


def _called(model: type[ContractMessage]) -> str:
    return "this command" if issubclass(model, Command) else model.__name__


def _printable(field: str) -> str:
    return field[:200].encode("ascii", "backslashreplace").decode()
