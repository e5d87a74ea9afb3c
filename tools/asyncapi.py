"""Writes the contract as AsyncAPI 3 from the models and the topology: `make schemas`."""

import io
from typing import Any

from pydantic.json_schema import models_json_schema

from scheduler import __version__
from scheduler.client.retries import RetryQueues
from scheduler.domain import messages, names
from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS, ContractMessage
from scheduler.rabbit import topology
from scheduler.resources import folder
from tools.message_examples import EXAMPLES
from tools.message_headers import headers, properties

FILE = "asyncapi.yaml"
_MODELS: tuple[type[ContractMessage], ...] = (
    *COMMAND_MODELS.values(), *RESULT_MODELS.values(), *messages.EVENT_MODELS.values(), messages.ScheduleAccepted,
    messages.ScheduleRecorded,
)
_INCOMING: dict[str, type[ContractMessage]] = {**COMMAND_MODELS, **RESULT_MODELS}
_ANSWERS = ["ScheduleAccepted", "ScheduleRecorded", "ScheduleRejected"]
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
    found = {
        f"command.{key}": _by_key(names.COMMANDS_EXCHANGE, key, [model.__name__], model.__doc__ or "")
        for key, model in _INCOMING.items()
    }
    found |= {
        f"event.{key}": _by_key(names.EVENTS_EXCHANGE, key, [model.__name__], model.__doc__ or "")
        for key, model in messages.EVENT_MODELS.items()
    }
    found["dead"] = _by_key(
        names.DEAD_EXCHANGE, "{command}", [_DEAD_LETTER],
        "Commands that can never succeed, each under its own routing key, the events of runs that were given up "
        "under due, and delayed messages that came to nothing, with the reasons in the headers.",
    ) | {"parameters": {"command": {
        "description": "The routing key that it had; one of these, or whatever it came with.",
        "examples": [*_INCOMING, "due"],
    }}}
    found |= _by_route() | _delays()
    found["reply"] = {
        "address": None,
        "description": "The queue that a command's `reply_to` names, through the default exchange, with the "
        "command's `correlation_id`.",
        "messages": _references(_ANSWERS),
    }
    inbox = topology.inbox_arguments("quorum")
    found[names.INBOX_QUEUE] = _queue(
        names.INBOX_QUEUE, commands, inbox,
        f"The sidecar's; bound to {names.COMMANDS_EXCHANGE} by {', '.join(COMMAND_MODELS)}.",
    )
    found[names.RESULTS_QUEUE] = _queue(
        names.RESULTS_QUEUE, [model.__name__ for model in RESULT_MODELS.values()], inbox,
        f"The sidecar's; bound to {names.COMMANDS_EXCHANGE} by {', '.join(RESULT_MODELS)}.",
    )
    found[names.DUE_QUEUE] = _queue(
        names.DUE_QUEUE, ["ScheduleDue"], {}, f"The host's; bound to {names.EVENTS_EXCHANGE} by due."
    )
    found[names.DEAD_QUEUE] = _queue(
        names.DEAD_QUEUE, [_DEAD_LETTER], topology.dead_arguments("quorum"),
        f"For people; bound to {names.DEAD_EXCHANGE} by #.",
    )
    return found | _host_queues()


def _by_route() -> dict[str, Any]:
    """Where a ScheduleDue goes instead of `due`: by its job's route, or to the workers by its target."""
    due = ["ScheduleDue"]
    route = {"route": {"description": "The request's `route`: words with dots between them."}}
    name = {"name": {"description": "The command's name."}}
    work = topology.work_arguments("quorum")
    command, queue = f"{names.COMMAND_KEY_PREFIX}{{name}}", f"{names.COMMAND_QUEUE_PREFIX}{{name}}"
    return {
        "event.due.route": _by_key(
            names.EVENTS_EXCHANGE, "due.{route}", due, "An occurrence of a job with a route is due."
        ) | {"parameters": route},
        "work.webhook": _by_key(names.WORK_EXCHANGE, names.WEBHOOK_KEY, due, "A webhook is to be called."),
        "work.command": _by_key(
            names.WORK_EXCHANGE, command, due, "A command is to be run.") | {"parameters": name},
        names.WEBHOOKS_QUEUE: _queue(
            names.WEBHOOKS_QUEUE, due, work,
            f"The workers'; bound to {names.WORK_EXCHANGE} by {names.WEBHOOK_KEY}.",
        ),
        f"{names.COMMAND_QUEUE_PREFIX}name": _queue(
            queue, due, work,
            f"Of the workers that offer the command; bound to {names.WORK_EXCHANGE} by {command}.",
        ) | {"parameters": name},
    }


def _delays() -> dict[str, Any]:
    """The way of delayed messages."""
    key = {"parameters": {"routing_key": {"description": "Any: it comes out under the same."}}}
    entry = _by_key(
        names.DELAY_EXCHANGE, "{routing_key}", [_DELAYED],
        f"What has a delay header is kept until then; all else goes straight on to {names.DELAYED_EXCHANGE}.",
    )
    entry["bindings"]["amqp"]["exchange"]["type"] = "headers"
    return {
        "delay": entry | key,
        "delayed": _by_key(
            names.DELAYED_EXCHANGE, "{routing_key}", [_DELAYED], "What was delayed comes out.") | key,
        names.DELAY_QUEUE: _queue(
            names.DELAY_QUEUE, [_DELAYED], topology.inbox_arguments("quorum"),
            f"The sidecar's; bound to {names.DELAY_EXCHANGE} by any of the delay headers.",
        ),
    }


def _host_queues() -> dict[str, Any]:
    """The queues that `scheduler.client.Runner` keeps beside the host's own."""
    retries = RetryQueues(names.DUE_QUEUE)
    return {
        retries.dead_queue: _queue(
            retries.dead_queue, [_UNHANDLED], retries.dead_arguments,
            "Of the Python host kit: events whose handler failed for good, with the traceback.",
        ),
        f"{names.DUE_QUEUE}_retry": _queue(
            retries.room("{milliseconds}"), [_UNHANDLED], retries.room_arguments,
            "Of the Python host kit: events that wait before they go back to mainapp_due.",
        ) | {"parameters": {"milliseconds": {"description": "How long an event waits there."}}},
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
    found: dict[str, Any] = {
        "address": name,
        "description": text,
        "messages": _references(names),
        "bindings": {"amqp": {
            "is": "queue",
            "queue": {"name": name, "durable": True, "exclusive": False, "autoDelete": False},
            "bindingVersion": "0.3.0",
        }},
    }
    return found | ({"x-queue-arguments": arguments} if arguments else {})


def _references(names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _operations() -> dict[str, Any]:
    answers = [{"$ref": f"#/channels/reply/messages/{name}"} for name in _ANSWERS]
    found: dict[str, Any] = {
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
        found[key] = {
            "action": "send",
            "summary": model.__doc__,
            "channel": {"$ref": f"#/channels/event.{key}"},
            "messages": [{"$ref": f"#/channels/event.{key}/messages/{model.__name__}"}],
            "bindings": {"amqp": {"deliveryMode": 2, "mandatory": key == "due", "bindingVersion": "0.3.0"}},
        }
    for name in ("event.due.route", "work.webhook", "work.command"):
        found[name.removeprefix("event.")] = {
            "action": "send", "channel": {"$ref": f"#/channels/{name}"},
            "summary": _by_route()[name]["description"],
            "bindings": {"amqp": {"deliveryMode": 2, "mandatory": True, "bindingVersion": "0.3.0"}},
        }
    found["dead"] = {"action": "send", "channel": {"$ref": "#/channels/dead"},
                     "summary": "Set aside a command that can never succeed, body and properties untouched."}
    found["delay"] = {"action": "receive", "channel": {"$ref": "#/channels/delay"},
                      "summary": "Keep a message until its time has come."}
    found["delayed"] = {"action": "send", "channel": {"$ref": "#/channels/delayed"},
                        "summary": "Send it on, as it came."}
    return found


def _messages() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for model in _MODELS:
        name = model.__name__
        found[name] = _message(name, model.__doc__ or "", {"$ref": f"#/components/schemas/{name}"})
        found[name]["examples"] = [{"payload": example} for example in EXAMPLES[name]]
    found[_DEAD_LETTER] = _message(
        _DEAD_LETTER, "A rejected command: whatever bytes it had.", {"description": "Not necessarily JSON."}
    )
    found[_UNHANDLED] = _message(
        _UNHANDLED, "A ScheduleDue whose handler failed.", {"$ref": "#/components/schemas/ScheduleDue"}
    )
    found[_DELAYED] = _message(
        _DELAYED, "Any message of a host's own, with any properties.", {"description": "Any bytes."}
    )
    return found


def _message(name: str, text: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "title": name, "summary": text, "contentType": "application/json",
        "headers": headers(name), "payload": payload, "x-amqp-properties": properties(name),
    }


def _schemas() -> dict[str, Any]:
    modes = [
        (each, "validation" if each in _INCOMING.values() else "serialization") for each in _MODELS
    ]
    _, found = models_json_schema(modes, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    definitions: dict[str, Any] = found["$defs"]
    return dict(sorted(definitions.items()))


def text() -> str:
    """Return the file's text."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - a development tool: nobody needs it at run time

    yaml = YAML()
    yaml.width = 110
    yaml.representer.ignore_aliases = lambda _: True
    out = io.StringIO("")
    out.write("# Generated by `make schemas` from scheduler/domain/messages/ and the topology: do not edit.\n")
    yaml.dump(document(), out)
    return out.getvalue()


if __name__ == "__main__":
    (folder("schemas") / FILE).write_text(text(), encoding="utf-8")
