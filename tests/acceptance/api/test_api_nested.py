"""Deeply nested content is normal JSON: it is shown unchanged, and breaks no list."""

import json
import os
import subprocess
import sys
from uuid import uuid4

import pytest
from delayed_support import Shop
from support import DEADLINE, iso, until, utc

DEPTHS = [190, 201, 260, 900]  # what pydantic reads and writes, and what only one of them or neither does
HOUR = 3_600_000


def objects(depth):
    return '{"a":' * depth + "1" + "}" * depth


def lists(depth):
    return "[" * depth + "]" * depth


@pytest.fixture(scope="module")
def host(shared_host):
    return shared_host


def scheduler(shared, *arguments):
    done = subprocess.run([sys.executable, "-m", "scheduler", *arguments], env=os.environ | shared.env, text=True,
                          capture_output=True, timeout=DEADLINE, check=True)
    return done.stdout


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_payload_is_returned_unchanged(api, shared, depth):
    plain = api.job(payload={"plain": True}, name="“Quoted”: é")
    fields = {"id": str(uuid4()), "job_type": "nested", "run_at": "2099-01-01T00:00:00Z"}
    body = f'{json.dumps(fields)[:-1]},"payload":{objects(depth)}}}'.encode()
    response = api.post("/jobs", body)
    assert response.status == 201, response.body
    assert f'"payload":{objects(depth)}' in response.body.decode()
    job = response.json
    assert (job["id"], job["job_type"], job["next_run_at"]) == (
        fields["id"], "nested", "2099-01-01T00:00:00.000000Z")
    assert set(job) == set(plain)
    assert api.post("/jobs", body).json == job
    assert api.get(f"/jobs/{job['id']}").json == job
    assert api.get("/jobs").json["items"] == [job, plain]
    told = json.loads(scheduler(shared, "job", "list", "--json", "--tenant", job["tenant"]))
    assert told == [job, plain]
    assert json.loads(scheduler(shared, "job", "pause", job["id"], "--json"))["payload"] == job["payload"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_output_is_returned_unchanged(api, host, depth):
    host.drain("mainapp_due")
    job = api.job(run_at=iso(utc()), run={"max_attempts": 2, "backoff": [0]})
    for number, status in ((1, "failed"), (2, "succeeded")):
        [event] = host.due()
        until(lambda event=event: api.get(f"/runs/{event['event_id']}").status == 200, "the run on record")
        body = f'{{"attempt":{number},"status":"{status}","output":{lists(depth)}}}'.encode()
        answer = api.post(f"/runs/{event['event_id']}/result", body)
        assert answer.status == 200, answer.body
    run = answer.json
    assert f'"output":{lists(depth)}' in answer.body.decode()
    assert [attempt["output"] for attempt in run["attempts"]] == [run["output"]] * 2
    assert api.get(f"/runs/{run['event_id']}").json == run
    [listed] = api.get(f"/jobs/{job['id']}/runs").json["items"]
    assert listed | {"attempts": run["attempts"]} == run


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_console_shows_the_job_its_form_and_its_run(served, host, depth):
    host.drain("mainapp_due")
    fields = {"id": str(uuid4()), "job_type": "shown", "run_at": iso(utc()), "run": {"max_attempts": 1}}
    assert served.post("/jobs", f'{json.dumps(fields)[:-1]},"payload":{objects(depth)}}}'.encode()).status == 201
    body = host.get("mainapp_due")[2].decode()
    assert objects(depth) in body
    event_id = json.loads(body)["event_id"]
    until(lambda: served.get(f"/runs/{event_id}").status == 200, "the run on record")
    result = f'{{"attempt":1,"status":"failed","output":{lists(depth)}}}'.encode()
    assert served.post(f"/runs/{event_id}/result", result).status == 200
    for path in ("/", "/jobs", "/runs", f"/jobs/{fields['id']}", f"/jobs/{fields['id']}/edit",
                 f"/runs/{event_id}"):
        text = "".join(served.page(path).replace("&#34;", '"').split())
        assert objects(depth) in text or path in ("/", "/jobs", "/runs"), path
    assert lists(depth) in text


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_dead_letter_and_a_delayed_message_are_shown_as_json_or_as_text(served, host, shared, depth):
    body, name = f'{{"colour":{lists(depth)}}}', f"nested.{depth}"
    host.publish("pause", body.encode(), correlation_id=name)
    shop = Shop(shared.amqp_url)
    shop.send(name, body.encode(), x_delay=HOUR)
    shop.close()

    def lying():
        return [item for item in served.get("/dead").json["items"]
                if item["properties"].get("correlation_id") == name]

    [letter] = until(lying, "the dead letter")
    [listed] = until(lambda: served.get("/delayed", routing_key=name).json["items"], "the delayed message")
    for found in (letter, served.get(f"/delayed/{listed['id']}").json):
        shown = found["body"] if found["body_encoding"] == "text" else json.dumps(found["body"])
        assert shown.replace(" ", "") == body
    assert letter["id"] in [load["id"] for load in json.loads(scheduler(shared, "dead", "list", "--json"))]
