"""The AsyncAPI document says what the models and the topology say, and leaves nothing out."""

import json

import pytest
from jsonschema import Draft7Validator

from scheduler.domain import names
from scheduler.domain.messages import COMMAND_MODELS, EVENT_MODELS, RESULT_MODELS
from scheduler.domain.targets.target import SHARED_QUEUES
from scheduler.resources import folder
from tools import asyncapi

DOCUMENT = asyncapi.document()


def test_the_file_is_what_the_models_say():
    assert (folder("schemas") / asyncapi.FILE).read_text() == asyncapi.text(), "run `make schemas`"


def test_every_exchange_queue_and_routing_key_is_in_it():
    bindings = [channel["bindings"]["amqp"] for channel in DOCUMENT["channels"].values() if "bindings" in channel]
    exchanges = {binding["exchange"]["name"] for binding in bindings if binding["is"] == "routingKey"}
    queues = {binding["queue"]["name"] for binding in bindings if binding["is"] == "queue"}
    named = {value for name, value in vars(names).items() if name.endswith("_EXCHANGE")}
    assert exchanges == named
    named = {value for name, value in vars(names).items() if name.endswith("_QUEUE")}
    named |= SHARED_QUEUES.keys() | {f"{queue}.{{pool}}" for queue in SHARED_QUEUES}
    commands = {"scheduler_command_{name}", "scheduler_command_{name}.{pool}"}
    assert queues == named | commands | {"mainapp_due_dead", "mainapp_due_retry_{milliseconds}ms"}
    keys = {channel["address"] for channel in DOCUMENT["channels"].values()}
    assert keys >= {*COMMAND_MODELS, *RESULT_MODELS, *EVENT_MODELS, "due.{route}", "webhook", "command.{name}",
                    "webhook.{pool}", "command.{name}.{pool}"}


@pytest.mark.parametrize("name", [name for name in DOCUMENT["components"]["messages"] if name[:8] == "Schedule"])
def test_every_example_fits_the_schema_in_the_document(name):
    message = DOCUMENT["components"]["messages"][name]
    schema = {"components": DOCUMENT["components"], **message["payload"]}
    assert message["examples"]
    for example in message["examples"]:
        Draft7Validator(schema).validate(example["payload"])
    Draft7Validator.check_schema(json.loads(json.dumps(message["headers"])))
