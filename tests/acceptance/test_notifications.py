"""SCHEDULER_NOTIFY_WEBHOOK: one replica tells one URL what goes wrong and what is well again."""

import base64
import json
import secrets

import pytest
from endpoints import answer, endpoint, in_turn
from standardwebhooks.webhooks import Webhook
from support import until, utc

SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def settings(server):
    return {"SCHEDULER_NOTIFY_WEBHOOK": server.url("/notify"), "SCHEDULER_NOTIFY_SECRET": SECRET,
            "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8"}


def told(server, kind):
    """Return the notifications of a kind, in their order; what is sent again has the same id."""
    items = [item for call in server.calls("/notify") for item in call.json["notifications"]]
    return list({item["id"]: item for item in items if item["kind"] == kind}.values())


def wait_for(server, kind, *states):
    until(lambda: len(told(server, kind)) >= len(states), f"{states} of {kind}")
    items = told(server, kind)
    assert [item["state"] for item in items] == list(states)
    return items


def test_a_dead_run_and_its_recovery_are_told_once_by_one_of_many_replicas(sidecar, host, server, settings):
    sidecar.up(consumers=2, producers=2, **settings)
    server.on("/notify", in_turn(answer(500), *[answer(204)] * 100))  # the first call fails and is repeated
    job_id = host.request(run_at=utc().isoformat(), run={"max_attempts": 1}, name="Nightly report", every="PT2S")
    events = host.due(2)
    until(lambda: sidecar.sql("SELECT 1 FROM notifications WHERE kind = 'place'"), "a replica that notifies")
    for number, event in enumerate(events):
        host.publish("result", {"event_id": event["event_id"], "attempt": 1, "status": "failed",
                                "error": f"disk full {number}"})
    [item] = wait_for(server, "run_dead", "firing")
    assert item["job_id"] == job_id
    assert item["summary"].startswith("A run of the job Nightly report is dead: disk full")
    until(lambda: len(server.calls("/notify")) >= 2, "the call again after its failure")
    for call in server.calls("/notify"):
        Webhook(SECRET).verify(call.body, call.headers)
    until(lambda: len(sidecar.sql("SELECT 1 FROM run_history WHERE status = 'dead'")) == 2, "both runs dead")
    [event] = host.due(1)
    host.publish("result", {"event_id": event["event_id"], "attempt": 1, "status": "succeeded"})
    firing, resolved = wait_for(server, "run_dead", "firing", "resolved")
    assert resolved["summary"] == "The job Nightly report has succeeded again"
    assert resolved["since"] > firing["since"]
    delivered = [item["id"] for call in server.calls("/notify")[1:] for item in call.json["notifications"]]
    assert len(delivered) == len(set(delivered))  # four replicas, and each item once
    assert "disk full" not in json.dumps(sidecar.sql("SELECT * FROM notifications"), default=str)


def test_a_backlog_is_told_although_the_broker_is_away_and_when_it_is_gone(sidecar, host, server, settings):
    sidecar.start("consumer", **settings).ready()
    host.request(run_at=utc(minutes=-3).isoformat())
    [item] = wait_for(server, "behind", "firing")
    assert "name" not in item
    sidecar.start("producer", **settings).ready()
    wait_for(server, "behind", "firing", "resolved")


def test_a_worker_that_disappears_and_a_calendar_that_ends_are_told(sidecar, host, server, settings):
    sidecar.up(**settings)
    host.publish("calendar", {"name": "bank", "closed": {utc(days=5).date().isoformat(): "x"},
                              "valid_until": utc(days=9).date().isoformat()})
    host.request(cron="0 9 * * *", calendar="bank")
    [item] = wait_for(server, "calendar_expiring", "firing")
    assert (item["name"], item["tenant"]) == ("bank", "default")
    stopped, killed = (sidecar.start("worker", "--only", "webhooks").ready() for _ in range(2))
    until(lambda: len(sidecar.sql("SELECT 1 FROM workers")) == 2, "the workers' rows")
    assert stopped.stop() == 0
    until(lambda: len(sidecar.sql("SELECT 1 FROM workers")) == 1, "one worker left")
    killed.kill()
    [item] = wait_for(server, "worker_lost", "firing")
    assert item["name"].endswith(f":{killed.popen.pid}")


def test_an_address_that_is_not_allowed_is_not_called(sidecar, server, settings, host):
    consumer = sidecar.start("consumer", **settings | {"SCHEDULER_WEBHOOK_ALLOW": "192.0.2.1"}).ready()
    host.request(run_at=utc(minutes=-3).isoformat())
    problem = consumer.logged("notification not delivered; retrying")["problem"]
    assert problem.startswith("refused: 127.0.0.1")
    assert not server.received


def test_without_a_secret_the_process_does_not_start(sidecar, settings):
    process = sidecar.start("producer", SCHEDULER_NOTIFY_WEBHOOK=settings["SCHEDULER_NOTIFY_WEBHOOK"])
    assert process.ended() == 78
    assert any("SCHEDULER_NOTIFY_SECRET" in line for line in process.raw)
    sidecar.processes.remove(process)
