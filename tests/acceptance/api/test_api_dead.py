"""Dead letters: listed, replayed and dropped; without a broker only they return 503."""

from dataclasses import replace
from uuid import uuid4

import pytest
from api_support import start_api
from support import iso, until, utc


@pytest.fixture(scope="module")
def host(shared_host):
    return shared_host


def lying(api, **found):
    answer = api.get("/dead")
    assert answer.status == 200, answer.body
    return [item for item in answer.json["items"] if all(item[name] == value for name, value in found.items())]


def test_a_rejected_command_is_shown_replayed_and_dropped(served, host):
    job = str(uuid4())
    forged = {"x-original-exchange": "schedule.delay", "x-original-expiration": 5}
    host.publish("pause", {"id": job, "colour": "red"}, correlation_id="c-1", headers=forged | {"own": "yes"})
    [letter] = until(lambda: lying(served, routing_key="pause"), "the dead letter")
    assert letter["reason"].startswith("colour: is not a field")
    assert (letter["body"], letter["kind"], letter["exchange"]) == (
        {"id": job, "colour": "red"}, "message", "schedule.commands"
    )
    assert letter["properties"]["correlation_id"] == "c-1"
    assert set(letter["headers"]) == {"x-rejected-reason", "x-rejected-at", "own"}
    assert served.get(f"/dead/{letter['id']}").json == letter
    # It is still invalid, so it is dead-lettered again, with a new id because of the new time.
    assert served.post(f"/dead/{letter['id']}/replay").status == 200
    [again] = until(lambda: lying(served, routing_key="pause"), "it is back")
    assert served.ask("DELETE", f"/dead/{again['id']}").status == 200
    assert lying(served, routing_key="pause") == []
    assert served.ask("DELETE", f"/dead/{again['id']}").status == 404
    actions = [item["action"] for item in served.get("/audit", kind="dead").json["items"]]
    assert actions[:2] == ["drop", "replay"]


def test_a_too_large_command_can_be_replayed_after_the_limit_is_raised(served, host, shared):
    job = {"id": str(uuid4()), "job_type": "big", "run_at": iso(utc(days=1)), "payload": {"x": "y" * 300_000}}
    host.publish("request", job)
    [letter] = until(lambda: lying(served, routing_key="request"), "the dead letter")
    shared.start("consumer", SCHEDULER_MAX_PAYLOAD_BYTES="1000000").ready()
    old = next(process for process in shared.processes if process.role == "consumer")
    assert old.stop() == 0
    assert served.post(f"/dead/{letter['id']}/replay").status == 200
    assert shared.stored(job["id"])["job_type"] == "big"
    assert lying(served, routing_key="request") == []


@pytest.mark.usefixtures("host")
def test_replaying_a_dead_run_retries_it(served):
    job = served.job(run={"max_attempts": 1}, run_at=iso(utc()))
    run = until(lambda: served.get(f"/jobs/{job['id']}/runs").json["items"], "its run")[0]
    served.post(f"/runs/{run['event_id']}/result", {"attempt": 1, "status": "failed", "error": "no"})
    [letter] = until(lambda: lying(served, kind="run"), "the dead letter")
    assert letter["reason"] == "failed at attempt 1: no"
    assert served.post(f"/dead/{letter['id']}/replay").status == 200
    until(lambda: served.get(f"/runs/{run['event_id']}").json["attempt"] == 2, "the second attempt")
    assert lying(served, kind="run") == []


def test_a_letter_without_a_source_cannot_be_replayed(served, host):
    host.channel.basic_publish("schedule.dead", "odd", b"\xff\x00")
    [letter] = until(lambda: lying(served, routing_key="odd"), "the dead letter")
    assert (letter["body_encoding"], letter["body"]) == ("base64", "/wA=")
    assert served.post(f"/dead/{letter['id']}/replay").status == 409
    assert lying(served, routing_key="odd") == [letter]
    served.ask("DELETE", f"/dead/{letter['id']}")


def test_dead_letters_are_paged(served, host):
    for number in range(7):
        host.channel.basic_publish("schedule.dead", "page", str(number).encode())
    until(lambda: len(lying(served, routing_key="page")) == 7, "all of them")
    seen, after = [], None
    while True:
        page = served.get("/dead", limit=3, after=after).json
        seen += [item["body"] for item in page["items"] if item["routing_key"] == "page"]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == list(range(7))
    assert served.get("/dead", after="x").status == 422


def test_without_a_broker_only_dead_letters_are_unavailable(sidecar):
    sidecar.env["AMQP_URL"] = "amqp://guest:guest@127.0.0.1:1/%2F"
    api = start_api(sidecar)
    assert api.job()["status"] == "pending"
    answer = replace(api, patient=False).get("/dead")
    assert (answer.status, int(answer.headers["Retry-After"]) >= 1) == (503, True)
    health = replace(api, patient=False).get("/health/detailed").json
    assert (health["status"], health["servers"]["postgres"]["status"]) == ("degraded", "ok")
    assert "127.0.0.1:1" in health["servers"]["rabbitmq"]["problem"]
