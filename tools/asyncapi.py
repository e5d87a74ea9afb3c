"""Writes the contract as AsyncAPI 3 from the models and the topology: `make schemas`."""

import io
from typing import Any

from pydantic.json_schema import models_json_schema

from scheduler import __version__
from scheduler.client.retries import RetryQueues
from scheduler.domain import messages, names
from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS, ContractMessage
from scheduler.domain.targets.target import TARGETS
from scheduler.rabbit import topology
from scheduler.resources import folder
from tools.message_examples import EXAMPLES
from tools.message_headers import headers, properties

FILE = "asyncapi.yaml"
_MODELS: tuple[type[ContractMessage], ...] = (
    *COMMAND_MODELS.values(), *RESULT_MODELS.values(), *messages.EVENT_MODELS.values(), messages.ScheduleAccepted,
    messages.ScheduleRecorded, messages.CalendarAccepted, messages.CalendarRejected,
)
_INCOMING: dict[str, type[ContractMessage]] = {**COMMAND_MODELS, **RESULT_MODELS}
_ANSWERS = [
    "CalendarAccepted", "CalendarRejected", "ScheduleAccepted", "ScheduleRecorded", "ScheduleRejected",
]
_DEAD_LETTER = "DeadLetter"
_UNHANDLED = "UnhandledDue"
_DELAYED = "DelayedMessage"


def document() -> dict[str, Any]:
    """Return the whole contract."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "scheduler",
            "version": __version__,
            "description": "A reminder engine: commands in, events out, over RabbitMQ. "
            "Written from the point of view of the sidecar: it receives commands and sends events.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {"rabbitmq": {
            "host": "localhost:5672", "protocol": "amqp", "protocolVersion": "0-9-1",
            "description": "RabbitMQ 3.10 or newer; AMQP_URL says where.",
            "security": [{"$ref": "#/components/securitySchemes/login"}],
        }},
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": _messages(),
            "schemas": _schemas(),
            "securitySchemes": {"login": {"type": "userPassword"}},
        },
    }


def _channels() -> dict[str, Any]:
    commands = [model.__name__ for model in COMMAND_MODELS.values()]
    result = {
        f"command.{key}": _by_key(names.COMMANDS_EXCHANGE, key, [model.__name__], model.__doc__ or "")
        for key, model in _INCOMING.items()
    }
    result |= {
        f"event.{key}": _by_key(names.EVENTS_EXCHANGE, key, [model.__name__], model.__doc__ or "")
        for key, model in messages.EVENT_MODELS.items()
    }
    result["dead"] = _by_key(
        names.DEAD_EXCHANGE, "{command}", [_DEAD_LETTER],
        "Commands that can never succeed, each under its own routing key, the events of dead runs "
        "under due, and delayed messages that were not delivered, with the reasons in the headers.",
    ) | {"parameters": {"command": {
        "description": "The original routing key: one of these, or any other.",
        "examples": [*_INCOMING, "due"],
    }}}
    result |= _by_route() | _delays()
    result["reply"] = {
        "address": None,
        "description": "The queue that a command's `reply_to` names, through the default exchange, with the "
        "command's `correlation_id`.",
        "messages": _references(_ANSWERS),
    }
    inbox = topology.inbox_arguments("quorum")
    result[names.INBOX_QUEUE] = _queue(
        names.INBOX_QUEUE, commands, inbox,
        f"The sidecar's; bound to {names.COMMANDS_EXCHANGE} by {', '.join(COMMAND_MODELS)}.",
    )
    result[names.RESULTS_QUEUE] = _queue(
        names.RESULTS_QUEUE, [model.__name__ for model in RESULT_MODELS.values()], inbox,
        f"The sidecar's; bound to {names.COMMANDS_EXCHANGE} by {', '.join(RESULT_MODELS)}.",
    )
    result[names.DUE_QUEUE] = _queue(
        names.DUE_QUEUE, ["ScheduleDue"], {}, f"The host's; bound to {names.EVENTS_EXCHANGE} by due."
    )
    result[names.DEAD_QUEUE] = _queue(
        names.DEAD_QUEUE, [_DEAD_LETTER], topology.dead_arguments("quorum"),
        f"For operators; bound to {names.DEAD_EXCHANGE} by #.",
    )
    return result | _host_queues()


def _by_route() -> dict[str, Any]:
    """The channels of a ScheduleDue other than `due`: by its job's route, or to workers by its target."""
    due = ["ScheduleDue"]
    route = {"route": {"description": "The request's `route`: words with dots between them."}}
    channels = {
        "event.due.route": _by_key(
            names.EVENTS_EXCHANGE, "due.{route}", due, "An occurrence of a job with a route is due."
        ) | {"parameters": route},
    }
    for kind in TARGETS:
        channels |= _work(kind, "") | _work(kind, ".pool")
    return channels


def _work(kind: str, pool: str) -> dict[str, Any]:
    """The channels of a kind of target, in the unnamed pool or in a named one."""
    model, due = TARGETS[kind], ["ScheduleDue"]
    described = {"name": {"description": f"The {kind}'s name."}} if model.by_name else {}
    described |= {"pool": {"description": "The target's `pool`, other than `default`."}} if pool else {}
    parameters = {"parameters": described} if described else {}
    ending = ("{name}" if model.by_name else "") + (".{pool}" if pool else "")
    key, queue = f"{model.key}{ending}", f"{model.queue}{ending}"
    whose = "The workers' of a named pool" if pool else "The workers'"
    return {
        f"work.{kind}{pool}": _by_key(names.WORK_EXCHANGE, key, due, model.__doc__ or "") | parameters,
        f"{model.queue}{'name' if model.by_name else ''}{pool}": _queue(
            queue, due, topology.work_arguments("quorum"), f"{whose}; bound to {names.WORK_EXCHANGE} by {key}.",
        ) | parameters,
    }


def _delays() -> dict[str, Any]:
    """The channels of delayed messages."""
    key = {"parameters": {"routing_key": {"description": "Any: it is delivered with the same key."}}}
    entry = _by_key(
        names.DELAY_EXCHANGE, "{routing_key}", [_DELAYED],
        f"Messages with a delay header are stored until then; others go straight to {names.DELAYED_EXCHANGE}.",
    )
    entry["bindings"]["amqp"]["exchange"]["type"] = "headers"
    return {
        "delay": entry | key,
        "delayed": _by_key(
            names.DELAYED_EXCHANGE, "{routing_key}", [_DELAYED], "Delayed messages are delivered.") | key,
        names.DELAY_QUEUE: _queue(
            names.DELAY_QUEUE, [_DELAYED], topology.inbox_arguments("quorum"),
            f"The sidecar's; bound to {names.DELAY_EXCHANGE} by any of the delay headers.",
        ),
    }


def _host_queues() -> dict[str, Any]:
    """The queues that `scheduler.client.Runner` adds to the host's queue."""
    retries = RetryQueues(names.DUE_QUEUE)
    return {
        retries.dead_queue: _queue(
            retries.dead_queue, [_UNHANDLED], retries.dead_arguments,
            "From the Python host kit: events whose handler failed permanently, with the traceback.",
        ),
        f"{names.DUE_QUEUE}_retry": _queue(
            retries.room("{milliseconds}"), [_UNHANDLED], retries.room_arguments,
            "From the Python host kit: events that are retried in mainapp_due after a delay.",
        ) | {"parameters": {"milliseconds": {"description": "The delay."}}},
    }


def _by_key(exchange: str, key: str, names: list[str], text: str) -> dict[str, Any]:
    return {
        "address": key,
        "description": text,
        "messages": _references(names),
        "bindings": {"amqp": {
            "is": "routingKey",
            "exchange": {"name": exchange, "type": "topic", "durable": True, "autoDelete": False},
            "bindingVersion": "0.3.0",
        }},
    }


def _queue(name: str, names: list[str], arguments: dict[str, Any], text: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "address": name,
        "description": text,
        "messages": _references(names),
        "bindings": {"amqp": {
            "is": "queue",
            "queue": {"name": name, "durable": True, "exclusive": False, "autoDelete": False},
            "bindingVersion": "0.3.0",
        }},
    }
    return result | ({"x-queue-arguments": arguments} if arguments else {})


def _references(names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _operations() -> dict[str, Any]:
    answers = [{"$ref": f"#/channels/reply/messages/{name}"} for name in _ANSWERS]
    result: dict[str, Any] = {
        key: {
            "action": "receive",
            "summary": model.__doc__,
            "channel": {"$ref": f"#/channels/command.{key}"},
            "messages": [{"$ref": f"#/channels/command.{key}/messages/{model.__name__}"}],
            "reply": {
                "address": {"location": "$message.header#/reply_to", "description": "Optional."},
                "channel": {"$ref": "#/channels/reply"},
                "messages": answers,
            },
        }
        for key, model in _INCOMING.items()
    }
    for key, model in messages.EVENT_MODELS.items():
        result[key] = {
            "action": "send",
            "summary": model.__doc__,
            "channel": {"$ref": f"#/channels/event.{key}"},
            "messages": [{"$ref": f"#/channels/event.{key}/messages/{model.__name__}"}],
            "bindings": {"amqp": {"deliveryMode": 2, "mandatory": key == "due", "bindingVersion": "0.3.0"}},
        }
    for name in ("event.due.route", *(f"work.{kind}{pool}" for kind in TARGETS for pool in ("", ".pool"))):
        result[name.removeprefix("event.")] = {
            "action": "send", "channel": {"$ref": f"#/channels/{name}"},
            "summary": _by_route()[name]["description"],
            "bindings": {"amqp": {"deliveryMode": 2, "mandatory": True, "bindingVersion": "0.3.0"}},
        }
    result["dead"] = {"action": "send", "channel": {"$ref": "#/channels/dead"},
                     "summary": "Set aside a command that can never succeed, body and properties untouched."}
    result["delay"] = {"action": "receive", "channel": {"$ref": "#/channels/delay"},
                      "summary": "Store a message until it is due."}
    result["delayed"] = {"action": "send", "channel": {"$ref": "#/channels/delayed"},
                        "summary": "Deliver it unchanged."}
    return result


def _messages() -> dict[str, Any]:
    result: dict[str, Any] = {}
    for model in _MODELS:
        name = model.__name__
        result[name] = _message(name, model.__doc__ or "", {"$ref": f"#/components/schemas/{name}"})
        result[name]["examples"] = [{"payload": example} for example in EXAMPLES[name]]
    result[_DEAD_LETTER] = _message(
        _DEAD_LETTER, "A rejected command, with its original bytes.", {"description": "Not necessarily JSON."}
    )
    result[_UNHANDLED] = _message(
        _UNHANDLED, "A ScheduleDue whose handler failed.", {"$ref": "#/components/schemas/ScheduleDue"}
    )
    result[_DELAYED] = _message(
        _DELAYED, "Any message of a host, with any properties.", {"description": "Any bytes."}
    )
    return result


def _message(name: str, text: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "title": name, "summary": text, "contentType": "application/json",
        "headers": headers(name), "payload": payload, "x-amqp-properties": properties(name),
    }


def _schemas() -> dict[str, Any]:
    modes = [
        (model, "validation" if model in _INCOMING.values() else "serialization") for model in _MODELS
    ]
    _, result = models_json_schema(modes, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    definitions: dict[str, Any] = result["$defs"]
    return dict(sorted(definitions.items()))


def text() -> str:
    """Return the file's text."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - only a development tool needs it

    yaml = YAML()
    yaml.width = 110
    yaml.representer.ignore_aliases = lambda _: True
    out = io.StringIO("")
    out.write("# Generated by `make schemas` from scheduler/domain/messages/ and the topology: do not edit.\n")
    yaml.dump(document(), out)
    return out.getvalue()


if __name__ == "__main__":
    (folder("schemas") / FILE).write_text(text(), encoding="utf-8")
