"""A worker gives a job only the secrets of its tenant, for the hosts and uses that the operator chose."""

import json

import pytest
from endpoints import answer, endpoint, event, results
from standardwebhooks.webhooks import Webhook
from support import Process

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FILE = f"""
plain = "plain-text-value"
signs = "{KEY}"
[acme]
value = "acme-text-value"
tenants = ["acme"]
[elsewhere]
value = "elsewhere-value"
hosts = ["api.example.org", "10.0.0.0/8"]
[local]
value = "local-value"
tenants = ["*"]
hosts = ["127.0.0.0/8"]
[acme-signs]
value = "{KEY}"
tenants = ["acme"]
"""


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def worker(amqp_url, tmp_path):
    file = tmp_path / "secrets.toml"
    file.write_text(FILE)
    process = Process("worker", {"AMQP_URL": amqp_url, "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8",
                                 "SCHEDULER_WEBHOOK_SECRETS_FILE": str(file), "LOG_LEVEL": "debug"}).ready()
    yield process
    process.kill()


@pytest.fixture
def called(worker, server, host):  # noqa: ARG001 - it makes the calls
    def make(tenant, **webhook):
        asked = event(server.url("/"), **webhook) | ({} if tenant == "default" else {"tenant": tenant})
        before = len(server.received)
        host.publish("webhook", asked, exchange="schedule.work")
        [told] = results(host, 1).values()
        return (server.received[before] if len(server.received) > before else None), told

    return make


def using(name):
    return {"headers": {"X-Token": f"{{{{secret.{name}}}}}"}}


@pytest.mark.parametrize(("tenant", "webhook", "name"), [
    ("acme", using("plain"), "plain"), ("default", using("acme"), "acme"), ("other", using("acme"), "acme"),
    ("acme", using("signs"), "signs"), ("default", using("signs"), "signs"),
    ("default", using("elsewhere"), "elsewhere"), ("acme", {"secret": "signs"}, "signs"),
    ("default", {"secret": "plain"}, "plain"), ("default", {"secret": "acme-signs"}, "acme-signs"),
    ("default", using("missing"), "missing"),
])
def test_a_secret_that_is_not_the_jobs_to_use_fails_like_one_that_does_not_exist(called, tenant, webhook, name):
    sent, told = called(tenant, **webhook)
    assert sent is None
    assert (told["status"], told["retry"]) == ("failed", False)
    assert told["error"] == (f"the secret {name!r} is not available: it is not in the worker's "
                             "SCHEDULER_WEBHOOK_SECRETS_FILE, or not for this tenant, host and use (whsec_ values "
                             "sign, others are for headers)")


def test_a_secret_is_used_by_its_tenants(called):
    for tenant, name, value in (("default", "plain", "plain-text-value"), ("acme", "acme", "acme-text-value"),
                                ("acme", "local", "local-value"), ("default", "local", "local-value")):
        sent, told = called(tenant, **using(name))
        assert (sent.headers["x-token"], told["status"]) == (value, "succeeded")
    for tenant, name in (("default", "signs"), ("acme", "acme-signs")):
        sent, told = called(tenant, secret=name)
        assert Webhook(KEY).verify(sent.body, sent.headers) == sent.json


def test_what_an_endpoint_echoes_of_a_secret_is_replaced(called, server, worker):
    def echo(connection, received):
        token = received.headers["x-token"]
        body = json.dumps({"you sent": token}).encode()
        # The second one begins right before the cut at 16 KiB.
        body += b"." * (16 * 1024 - 6 - len(body)) + token.encode() * 2
        answer(500, body, x_echo=token)(connection, received)

    server.on("/", echo)
    sent, told = called("default", **using("plain"))
    assert sent.headers["x-token"] == "plain-text-value"
    assert told["output"]["headers"]["x-echo"] == "***"
    assert told["output"]["body"].startswith('{"you sent": "***"}...')
    assert told["output"]["body"].endswith("...***")
    assert "plain" not in json.dumps(told)

    server.on("/", lambda connection, received: connection.sendall(
        f"HTTP/1.1 {received.headers['x-token']}\r\n\r\n".encode()))
    _, told = called("default", **using("plain"))
    assert told["status"] == "failed"
    assert "plain" not in json.dumps(told)
    server.on("/", lambda connection, received: connection.sendall(
        f"HTTP/1.1 500 {received.headers['x-token']}\r\nContent-Length: 0\r\n\r\n".encode()))
    _, told = called("default", **using("plain"))
    assert told["error"].endswith("returned 500 ***")
    assert worker.stop() == 0
    assert "plain-text" not in "".join(worker.raw)
