"""The environment of the processes that `scheduler dev` starts."""

import pytest

from scheduler.dev.processes import _environment_of


@pytest.mark.parametrize(("role", "has_key"), [
    ("api", True), ("worker", False), ("consumer", False), ("producer", False),
])
def test_only_the_api_gets_the_key_of_the_tokens(monkeypatch, role, has_key):
    monkeypatch.setenv("SCHEDULER_JWT_KEY_FILE", "/run/secrets/jwt")
    found = _environment_of(role, {"SCHEDULER_JWT_KEY": "k" * 32, "AMQP_URL": "amqp://a"})
    assert found["AMQP_URL"] == "amqp://a"
    assert {"SCHEDULER_JWT_KEY", "SCHEDULER_JWT_KEY_FILE"} & found.keys() == (
        {"SCHEDULER_JWT_KEY", "SCHEDULER_JWT_KEY_FILE"} if has_key else set())
