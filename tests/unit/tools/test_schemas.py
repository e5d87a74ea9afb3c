import json

import pytest
from jsonschema import Draft202012Validator

from scheduler.resources import folder
from tools.schemas import OPENAPI, openapi, schemas, with_lists
from tools.typescript import FILE, types


@pytest.mark.parametrize("name", schemas())
def test_a_schema_file_is_what_the_models_say(name):
    assert (folder("schemas") / name).read_text() == schemas()[name], "run `make schemas`"
    Draft202012Validator.check_schema(json.loads(schemas()[name]))


def test_the_openapi_document_is_what_the_routes_say():
    assert (folder("schemas") / OPENAPI).read_text() == openapi(), "run `make schemas`"
    assert json.loads(openapi())["openapi"].startswith("3.1")


def test_no_schema_is_left_over():
    assert {path.name for path in folder("schemas").glob("*.json")} == {*schemas(), OPENAPI}


@pytest.mark.parametrize("path", ["host/outbox.sql", "roles/rabbitmq.sh"])
def test_the_files_for_operators_list_all_commands_and_queues(path):
    assert (folder("sql") / path).read_text() == with_lists(path), "run `make schemas`"
    assert "request" in with_lists(path)
    assert "trigger" in with_lists(path)


def test_the_typescript_types_are_what_the_models_say():
    assert (folder("schemas") / FILE).read_text() == types(), "run `make schemas`"
    for name in schemas():
        assert f"export interface {name.removesuffix('.json')} {{" in types()
