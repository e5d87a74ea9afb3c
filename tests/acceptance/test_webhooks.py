"""A job with a webhook needs no host code: scheduled over AMQP, called, signed, retried and told how it ended."""

import json

import pytest
from endpoints import answer, endpoint, in_turn
from standardwebhooks.webhooks import Webhook
from support import iso, until, utc

from scheduler import __version__

NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@pytest.fixture
def secrets(tmp_path):
    file = tmp_path / "secrets.toml"
    file.write_text(f'shop = "{NEW}"\nrotated = ["{NEW}", "{OLD}"]\ntoken = "s3cr3t-token"\n')
    return file


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def worked(sidecar, secrets):
    """A sidecar with a worker that may call loopback."""
    sidecar.up()
    sidecar.worker = sidecar.start(
        "worker", SCHEDULER_WEBHOOK_ALLOW="127.0.0.0/8", SCHEDULER_WEBHOOK_SECRETS_FILE=str(secrets)
    ).ready()
    return sidecar


def finished(host, queue):
    return json.loads(host.get(queue)[2])


def test_a_webhook_is_signed_retried_and_announced(worked, host, server):
    done = host.listen("schedule.events", "finished")
    plain = host.request(run_at=iso(utc()), payload={"invoice": 42, "exact": 1.50},
                         target={"webhook": {"url": server.url("/plain"), "secret": "rotated"}})
    event = finished(host, done)
    assert (event["job_id"], event["status"], event["attempts"]) == (plain, "succeeded", 1)
    assert (event["output"]["status_code"], event["output"]["body"]) == (204, "")
    assert event["output"]["duration_ms"] > 0
    call = server.one("/plain")
    assert (call.method, call.headers["content-type"]) == ("POST", "application/json")
    assert call.headers["user-agent"] == f"scheduler/{__version__}"
    for secret in (NEW, OLD):
        # An independent check: raises unless the signature is correct.
        assert Webhook(secret).verify(call.body, call.headers)["job_id"] == plain
    sent = call.json
    assert sent["event_id"] == call.headers["webhook-id"] == event["event_id"]
    assert '"payload":{"invoice": 42, "exact": 1.5}' in call.body.decode()  # the host's own text, as it sent it
    assert "target" not in sent
    assert sent["run"]["attempt"] == 1

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    server.on("/invoices/4%2F2", in_turn(
        answer(500, b"oops"), answer(503, retry_after="0"), answer(200, b"done", x_answer="yes"),
    ))
    host.publish("request", {
        "id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "invoice.reminder", "run_at": iso(utc()),
        "payload": {"id": "4/2", "to": {"name": "Zoë & {{job_id}}"}},
        "run": {"delay": 0}, "target": {"webhook": {
            "url": server.url("/invoices/{{payload.id}}?own=1"), "method": "PUT",
            "headers": {"Authorization": "Bearer {{secret.token}}", "X-Own": "a"},
            "query": {"who": "{{payload.to.name}}"},
            "body": {"attempt": "{{attempt}}", "say": "Dear {{payload.to.name}}", "due": "{{due_at}}", "n": 1},
        }},
    }, headers={"traceparent": trace})
    event = finished(host, done)
    assert (event["status"], event["attempts"], event["output"]["body"]) == ("succeeded", 3, "done")
    assert event["output"]["headers"]["x-answer"] == "yes"
    first, second, third = server.calls("/invoices/4%2F2")
    assert (first.method, first.headers["traceparent"]) == ("PUT", trace)
    assert (first.headers["authorization"], first.headers["x-own"]) == ("Bearer s3cr3t-token", "a")
    assert first.target.split("?")[1] == "own=1&who=Zo%C3%AB%20%26%20%7B%7Bjob_id%7D%7D"
    assert third.json == {"attempt": "3", "say": "Dear Zoë & {{job_id}}", "due": event["due_at"], "n": 1}
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == event["event_id"]
    assert "webhook-signature" not in first.headers

    kept = "SELECT attempts FROM run_history WHERE event_id = %s"  # a moment after its end was announced
    attempts = until(lambda: worked.sql(kept, event["event_id"]), "the run in the history")[0]["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["failed", "failed", "succeeded"]
    assert "returned 500" in attempts[0]["error"]
    said = "".join(worked.worker.raw)
    assert "s3cr3t-token" not in said
    assert "own=1" not in said


def test_permanent_webhook_failures_are_dead_with_a_reason(worked, host, server):
    done = host.listen("schedule.events", "finished")
    given_up = {
        "gone": ({"url": server.on("/gone", answer(410))}, "410 Gone"),
        "payload": ({"url": server.url("/x"), "body": "{{payload.not.there}}"}, "{{payload.not.there}}"),
        "secret": ({"url": server.url("/x"), "secret": "nobody"}, "'nobody'"),
        "header": ({"url": server.url("/x"), "headers": {"A": "{{secret.nothing}}"}}, "'nothing'"),
        "private": ({"url": "http://169.254.169.254/latest/meta-data"}, "169.254.169.254"),
        "no whsec": ({"url": server.url("/x"), "secret": "token"}, "whsec_"),
    }
    jobs = {host.request(run_at=iso(utc()), target={"webhook": hook}): words for hook, words in given_up.values()}
    for _ in given_up:
        event = finished(host, done)
        assert (event["status"], event["attempts"]) == ("dead", 1)
        assert jobs.pop(event["job_id"]) in event["error"]
    assert [event.target for event in server.received] == ["/gone"]
    requests = "scheduler_webhook_requests_total"
    until(lambda: f'{requests}{{class="refused"}} 1.0' in worked.worker.http("/metrics")[1], "the refusal counted")
