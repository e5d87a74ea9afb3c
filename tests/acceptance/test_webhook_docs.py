"""Runs the code of docs/webhooks.md: the requests, the ten-line receiver, and `webhook test`."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from api_support import start_api
from endpoints import answer, endpoint
from standardwebhooks.webhooks import Webhook
from support import DEADLINE, until

from scheduler.dev.servers.ports import free_ports

ROOT = Path(__file__).parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def block(file, after, language="python"):
    return re.search(rf"```{language}\n(.*?)```", (ROOT / file).read_text().split(after, 1)[1], re.DOTALL)[1]


@pytest.fixture
def secrets(tmp_path):
    file = tmp_path / "secrets.toml"
    file.write_text(f'shop = "{SECRET}"')
    return {"SCHEDULER_WEBHOOK_ALLOW": "127.0.0.1", "SCHEDULER_WEBHOOK_SECRETS_FILE": str(file)}


@contextmanager
def receiver():
    """The receiver of the documents, on a free port."""
    code = block("docs/webhooks.md", "## Receiving them")
    assert len([line for line in code.splitlines() if line.strip()]) <= 13  # ten lines, between import and server
    [port] = free_ports(1)
    process = subprocess.Popen([sys.executable, "-c", code.replace("8001", str(port))], stderr=subprocess.DEVNULL)
    try:
        until(lambda: send(port, {}, b"") == 401 or process.poll() is not None, "the receiver")
        yield port
    finally:
        process.kill()
        process.wait(DEADLINE)


def send(port, headers, body):
    given = {"webhook-id": "x", "webhook-timestamp": "0", "webhook-signature": "x"} | headers
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, given)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as found:
            return found.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def webhook_test(url, env, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "scheduler", "webhook", "test", url, *arguments], env=os.environ | env, text=True,
        capture_output=True, timeout=DEADLINE, check=False,
    )


def test_the_documented_receiver_accepts_only_signed_requests(secrets):
    now = datetime.now(UTC)
    with receiver() as port:
        signed = {"webhook-id": "m", "webhook-timestamp": str(int(now.timestamp())),
                  "webhook-signature": Webhook(SECRET).sign("m", now, "{}")}
        assert send(port, signed, b"{}") == 204
        assert send(port, signed, b"{ }") == 401
        assert send(port, signed | {"webhook-id": "n"}, b"{}") == 401
        assert send(port, signed | {"webhook-timestamp": "1"}, b"{}") == 401
        sent = webhook_test(f"http://127.0.0.1:{port}/?token=hunter2", secrets, "--secret", "shop")
        assert (sent.returncode, sent.stderr) == (0, "")
        assert "response 204" in sent.stdout
        assert "hunter2" not in sent.stdout
        unsigned = webhook_test(f"http://127.0.0.1:{port}/", secrets)
        assert unsigned.returncode == 1


def test_webhook_test_prints_the_response_and_its_outcome(secrets):
    with endpoint() as server:
        server.on("/fine", answer(200, b"thank you"))
        server.on("/bad", answer(500, b"no"))
        fine = webhook_test(server.url("/fine"), secrets, "--secret", "shop")
        assert fine.returncode == 0
        for words in ("response 200", "thank you", "would have succeeded", "webhook-signature: v1,"):
            assert words in fine.stdout
        sent = server.one("/fine")
        assert Webhook(SECRET).verify(sent.body, sent.headers)["job_type"] == "webhook.test"
        bad = webhook_test(server.url("/bad"), secrets)
        assert (bad.returncode, "retried according to" in bad.stdout) == (1, True)
        body = json.loads(webhook_test(server.url("/fine"), secrets, "--secret", "shop", "--json").stdout)
        assert (body["succeeded"], body["error"], body["retry"]) == (True, None, False)
        assert (body["output"]["status_code"], body["output"]["body"]) == (200, "thank you")
        assert Webhook(SECRET).verify(body["sent"]["body"], body["sent"]["headers"])["job_type"] == "webhook.test"
        bad = webhook_test(server.url("/bad"), secrets, "--json")
        assert (bad.returncode, json.loads(bad.stdout)["retry"]) == (1, True)
    refused = webhook_test(server.url("/"), {})
    assert (refused.returncode, "not public" in refused.stdout) == (1, True)
    nameless = webhook_test("https://example.org/", secrets, "--secret", "nobody")
    assert (nameless.returncode, "'nobody'" in nameless.stdout) == (1, True)
    nameless = webhook_test("https://example.org/", secrets, "--secret", "nobody", "--json")
    assert (nameless.returncode, json.loads(nameless.stdout)["sent"]) == (1, None)


def test_the_pages_webhook_is_called(sidecar, host, secrets):
    sidecar.up()
    sidecar.start("worker", **secrets).ready()
    done = host.listen("schedule.events", "finished")
    code = block("docs/webhooks.md", "<!-- webhook: run by")
    with endpoint() as server:
        code = code.replace("https://shop.example", server.url("").rstrip("/"))
        env = os.environ | {"AMQP_URL": sidecar.amqp_url}
        subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE, env=env)
        finished = json.loads(host.get(done)[2])
        assert (finished["status"], finished["job_type"]) == ("succeeded", "invoice.reminder")
        sent = server.one("/invoices/42")
        assert Webhook(SECRET).verify(sent.body, sent.headers)["payload"] == {"invoice": 42}

        api = start_api(sidecar)
        shell = block("docs/webhooks.md", "<!-- webhook: run by", "sh")
        shell = shell.replace("https://shop.example", server.url("").rstrip("/"))
        env |= {"API_URL": api.url, "TOKEN": api.token}
        subprocess.run(["sh", "-c", shell], check=True, timeout=DEADLINE, env=env)
        finished = json.loads(host.get(done)[2])
        assert finished["status"] == "succeeded"
        assert len(server.calls("/invoices/42")) == 2
