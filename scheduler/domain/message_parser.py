"""Turns the bytes of a command into a command, or says everything that is wrong with them."""

import json
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar, get_args
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from scheduler.domain.errors import MOST_PROBLEMS, Problem, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import (
    COMMAND_MODELS,
    Command,
    ContractMessage,
    ScheduleResult,
    ScheduleWorker,
)
from scheduler.domain.runs.result import Result, kept
from scheduler.domain.strict_json import parse_object

# The other fields together stay well under this; a body beyond it is refused before it is parsed.
_OTHER_FIELDS = 64 * 1024
_READABLE = 4 * 1024 * 1024
RESULT_BYTES = 16 * 1024 * 1024  # what is beyond the limit of `output` is cut, not refused
_IDS = ("id", "event_id")
WORKER_BYTES = 1024 * 1024
MOST_FIELDS = 100  # of one message, on its top level: several times what any command has
_MOST_DETAILS = 200  # of what pydantic found, one for each item of a list
_MOST_HINTS = 3  # a search for the field that was meant costs more than all else about a rejection
_LONGEST_HINTED = 64  # characters of a name that may be a misspelled field
_HYPHENATED = 36  # characters: of a UUID's spellings only the usual one, in capitals or not, has so many


def parse_command(
    routing_key: str, body: bytes, *, max_payload_bytes: int, message_type: str | None = None,
    beside: Mapping[str, str] = MappingProxyType({}), defaults: Mapping[str, str] = MappingProxyType({}),
) -> Incoming:
    """Return the command with the exact text of its payload; raise Rejected with every problem found.

    What came `beside` the body, such as the id in a path, is filled in, and the body may not say otherwise.
    """
    model = _model(COMMAND_MODELS, routing_key, message_type)
    if len(body) > max_payload_bytes + _OTHER_FIELDS:
        raise Rejected([Problem("payload", f"the message has {len(body):,} bytes; a payload may have at "
                                           f"most {max_payload_bytes:,} (SCHEDULER_MAX_PAYLOAD_BYTES)")])
    members, source = parse_object(body, exact="payload")
    _refuse_crowd(members, model)
    problems = _filled_in(members, beside) if beside else []
    more = 0
    for name, value in defaults.items():
        members.setdefault(name, value)
    payload = "{}" if source is None else source
    if len(payload) * 4 > max_payload_bytes and len(payload.encode()) > max_payload_bytes:
        problems.append(Problem("payload", f"has {len(payload.encode()):,} bytes; it may have at most "
                                           f"{max_payload_bytes:,} (SCHEDULER_MAX_PAYLOAD_BYTES)"))
    if isinstance(members.get("payload"), dict):
        members["payload"] = {}  # it is the host's own affair: its text is kept, and no object made of it
    try:
        command = _validator(model)(members)
    except ValidationError as error:
        found, more = _problems(error, model)
        problems.extend(found)
    if problems:
        raise Rejected(problems, more=more)
    return Incoming(command, _id(members[model.about]), payload, tenant=command.tenant)


def parse_result(
    routing_key: str, body: bytes, *, message_type: str | None = None,
    beside: Mapping[str, str] = MappingProxyType({}),
) -> Result:
    """Return a result, cut to what is kept; raise Rejected with every problem found."""
    model = _model(_RESULTS, routing_key, message_type)
    if len(body) > RESULT_BYTES:
        raise Rejected([Problem("body", f"has {len(body):,} bytes; a result may have at most {RESULT_BYTES:,}")])
    members, output = parse_object(body, exact="output")
    _refuse_crowd(members, model)
    members["output"] = None  # its text is kept, and no object made of it
    if beside and (problems := _filled_in(members, beside)):
        raise Rejected(problems)
    try:
        result = _validator(model)(members)
    except ValidationError as error:
        raise _rejected(error, model) from None
    return kept(result, _id(members["event_id"]), output)


def parse_worker(body: bytes, *, message_type: str | None = None) -> ScheduleWorker:
    """Return what a worker says of itself; raise Rejected with every problem found."""
    model = _model({ScheduleWorker.kind: ScheduleWorker}, ScheduleWorker.kind, message_type)
    if len(body) > WORKER_BYTES:
        raise Rejected([Problem("body", f"has {len(body):,} bytes; a worker may say at most {WORKER_BYTES:,}")])
    members, _ = parse_object(body, exact="")
    _refuse_crowd(members, model)
    try:
        return model.model_validate(members)
    except ValidationError as error:
        raise _rejected(error, model) from None


def _refuse_crowd(members: Collection[str], model: type[ContractMessage]) -> None:
    """Reject a message with far more fields than there are, before each of them is looked at."""
    if len(members) <= MOST_FIELDS:
        return
    unknown = [name for name in members if name not in model.model_fields]
    problems = [Problem(_printable(name), _unknown(name, model, hint=index < _MOST_HINTS))
                for index, name in enumerate(islice(unknown, MOST_PROBLEMS))]
    raise Rejected(problems, more=len(unknown) - len(problems))


def _filled_in(members: dict[str, Any], beside: Mapping[str, str]) -> list[Problem]:
    """Fill in what came beside a body where it does not say the same itself."""
    problems = []
    for name, value in beside.items():
        said = members.get(name, value)
        if said != value and not (name in _IDS and isinstance(said, str) and said.lower() == value):
            problems.append(Problem(name, f"must be {value}, or left out"))
        members[name] = value
    return problems


def _id(written: str) -> str:
    """Return a UUID, which has passed validation, as Postgres writes it."""
    return written.lower() if len(written) == _HYPHENATED else str(UUID(written))


Model = TypeVar("Model", bound=ContractMessage)


@lru_cache(maxsize=64)
def _validator(model: type[Model]) -> Callable[[Any], Model]:
    """Return a model's own validation: model_validate asks some questions first, a fifth of its time."""
    validate: Callable[[Any], Model] = TypeAdapter(model).validator.validate_python
    return validate


_RESULTS = {ScheduleResult.kind: ScheduleResult}


def _model(models: Mapping[str, type[Model]], routing_key: str, message_type: str | None) -> type[Model]:
    model = models.get(routing_key)
    if model is None:
        known = ", ".join(models)
        raise Rejected([Problem("routing_key", f"{routing_key[:80]!r} is not a command; use one of {known}")])
    if message_type and message_type not in (model.__name__, routing_key):
        raise Rejected([Problem("type", f"{message_type[:80]!r} does not belong to the routing key "
                                        f"{routing_key!r}; leave it out or use {model.__name__!r}")])
    return model


def id_in_body(body: bytes) -> str | None:
    """Return the id that a rejected command names, of its job or its run, where one can be read."""
    try:
        members = json.loads(body) if len(body) <= _READABLE else {}
        found = members.get("id", members.get("event_id"))
    except (ValueError, AttributeError, RecursionError):
        return None
    return found[:200].encode("utf-8", "replace").decode() if isinstance(found, str) else None


def _rejected(error: ValidationError, model: type[ContractMessage]) -> Rejected:
    problems, more = _problems(error, model)
    return Rejected(problems, more=more)


def _problems(error: ValidationError, model: type[ContractMessage]) -> tuple[list[Problem], int]:
    """Return the first problems in words, one for each field, and how many more there are."""
    found: dict[str, str] = {}
    hints = _MOST_HINTS
    details = error.errors(include_url=False, include_input=False)
    for index, detail in enumerate(details):
        if len(found) == MOST_PROBLEMS or index == _MOST_DETAILS:
            return _listed(found), len(details) - index
        path, inner = _path(detail["loc"], model)
        name = path[-1] if path else "body"
        if detail["type"] == "extra_forbidden":
            problem = _unknown(name, inner, hint=hints > 0)
            hints -= 1
        else:
            problem = _words(detail, name)
        if not path and detail["type"] == "value_error":  # about several fields: it names one
            field, _, problem = problem.partition(": ")
            path = [field]
        found.setdefault(_printable(".".join(path) or "body"), problem)
    return _listed(found), 0


def _listed(found: Mapping[str, str]) -> list[Problem]:
    return [Problem(field, problem) for field, problem in found.items()]


def _unknown(name: str, model: type[ContractMessage], *, hint: bool) -> str:
    """Say that a message has no such field, and which one was probably meant."""
    close = hint and len(name) <= _LONGEST_HINTED
    near = get_close_matches(name, model.model_fields, n=1, cutoff=0.5) if close else []
    return f"is not a field of {_called(model)}" + (f"; did you mean {near[0]!r}?" if near else "")


def _path(loc: tuple[int | str, ...], model: type[ContractMessage]) -> tuple[list[str], type[ContractMessage]]:
    """Return the fields that lead to a problem, and the model that has the last of them.

    A union's branch name, which pydantic puts in between, is our business and not the host's.
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
    known = model.model_fields.get(field)
    kinds = () if known is None else (known.annotation, *get_args(known.annotation))
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, ContractMessage)), None)


_PLAIN_WORDS = {
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
_PATTERNS = {  # a pattern is for machines
    "tenant": "1 to 100 of A-Z a-z 0-9 . _ -",
    "route": "words of A-Z a-z 0-9 _ - with dots between them, like mails.fast",
    "name": "1 to 100 of A-Z a-z 0-9 _ -",
}


def describe_error(detail: Any, field: str) -> str:
    """Say what pydantic found wrong with a value that came outside a body, in a path or a query."""
    if detail["type"] == "extra_forbidden":
        return "is not known here"
    return _words(detail, field)


def _words(detail: Any, field: str) -> str:
    kind = detail["type"]
    match kind:
        case "value_error":
            return str(detail["ctx"]["error"])
        case "string_type" | "float_type" if field == "every":
            return "must be an ISO 8601 duration like PT15M, or a number of seconds"
        case "literal_error" | "tuple_type" if field == "backoff":
            return "must be exponential, linear, fixed, or a list of seconds"
        case "string_pattern_mismatch" if field in _PATTERNS:
            return f"must be {_PATTERNS[field]}"
        case "enum":
            return f"must be {detail['ctx']['expected']}"
    message: str = detail["msg"]
    return _PLAIN_WORDS.get(kind) or message[:1].lower() + message[1:]


def _called(model: type[ContractMessage]) -> str:
    return "this command" if issubclass(model, Command) else model.__name__


def _printable(field: str) -> str:
    return field[:200].encode("ascii", "backslashreplace").decode()
