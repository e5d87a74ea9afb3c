"""The examples in the schemas are messages that the sidecar would really take or send."""

import json
from datetime import UTC, datetime

import pytest
from jsonschema import Draft202012Validator

from scheduler.domain.jobs.job import apply
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.domain.messages import Command, ScheduleCalendar, ScheduleResult, ScheduleRetry
from scheduler.resources import folder
from tools.message_examples import EXAMPLES
from tools.schemas import MODELS


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_example_fits_its_schema_and_its_model(model):
    schema = json.loads((folder("schemas") / f"{model.__name__}.json").read_text())
    assert schema["examples"] == EXAMPLES[model.__name__]
    for example in schema["examples"]:
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(example)
        if issubclass(model, ScheduleResult):
            parse_result(model.kind, json.dumps(example).encode())
        elif issubclass(model, ScheduleRetry | ScheduleCalendar):
            parse_command(model.kind, json.dumps(example).encode(), max_payload_bytes=9999)
        elif issubclass(model, Command):
            incoming = parse_command(model.kind, json.dumps(example).encode(), max_payload_bytes=9999)
            apply(None, incoming, datetime(2026, 11, 1, tzinfo=UTC))
        else:
            assert json.loads(model.model_validate(example).model_dump_json(exclude_unset=True)) == example
