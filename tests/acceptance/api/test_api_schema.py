"""Requests that the OpenAPI document allows, and many that it does not: no 500, and documented responses."""

import json

import pytest
import schemathesis
from api_support import BUSY, token
from commands import EXAMPLES
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support import DEADLINE, until

from tools.schemas import openapi

CHECKS = [not_a_server_error, content_type_conformance, response_headers_conformance, response_schema_conformance,
          status_code_conformance]
document = schemathesis.openapi.from_dict(json.loads(openapi()))
document.config.generation.modes = list(schemathesis.GenerationMode)
HASTE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]




def ask(served, case):
    def answered():
        response = case.call(base_url=served.url, timeout=DEADLINE,
                          headers={"Authorization": f"Bearer {token('admin', sub='fuzzer')}"})
        return response if response.status_code != BUSY else None

    case.validate_response(until(answered, "an answer"), checks=CHECKS)


@document.parametrize()
@settings(max_examples=5, deadline=None, suppress_health_check=HASTE, derandomize=True)
def test_every_response_matches_the_openapi_document(served, case):
    ask(served, case)


@pytest.mark.deep
@document.parametrize()
@settings(max_examples=(EXAMPLES or 1000) // 10, deadline=None, suppress_health_check=HASTE)
def test_every_response_matches_the_openapi_document_deep(served, case):
    ask(served, case)
