"""A tenant can neither fill scheduler_dead with large messages nor have a replay run under another tenant."""

from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from api_support import start_api
from support import until

LATER = "2099-01-01T00:00:00Z"
MAX_BODY = 262_144 + 1024 * 1024
BY_USER = {"SCHEDULER_TENANT_BY": "user_id", "SCHEDULER_TENANT_ROUTES": "prefix"}
FORGED = {"x-original-user-id": "globex", "x-rejected-reason": "forged", "x-replayed-user-id": "globex"}


def request(**fields):
    return {"id": str(uuid4()), "job_type": "a", "run_at": LATER, "payload": {"text": "x" * 200}} | fields


def dead_letters(api, count=1):
    def listed():
        response = api.get("/dead")
        return response.status == 200 and len(response.json["items"]) == count and response.json["items"]

    return until(listed, f"{count} dead letters")


@pytest.mark.parametrize("moved_by", ["consumer", "broker"])
def test_a_replay_keeps_the_tenant_that_the_broker_verified(sidecar, host, amqp_url, moved_by):
    user = urlsplit(amqp_url).username
    body = request()
    if moved_by == "broker":
        host.publish("request", body, user_id=user, headers=FORGED, expiration="1")
        dead = until(lambda: host.channel.queue_declare("scheduler_dead", passive=True).method.message_count, "it")
        assert dead == 1
    sidecar.start("consumer", SCHEDULER_MAX_PAYLOAD_BYTES="100", **BY_USER).ready()
    if moved_by == "consumer":
        host.publish("request", body, user_id=user, headers=FORGED)
    api = start_api(sidecar, **BY_USER)
    [letter] = dead_letters(api)
    assert api.post(f"/dead/{letter['id']}/replay").status == 200
    assert sidecar.stored(body["id"])["tenant"] == user
    assert api.get("/dead").json["items"] == []


def test_a_publisher_without_user_cannot_name_one_in_a_header(sidecar, host):
    sidecar.start("consumer", **BY_USER).ready()
    body = request()
    host.publish("request", body, headers=FORGED)
    api = start_api(sidecar, **BY_USER)
    [letter] = dead_letters(api)
    response = api.post(f"/dead/{letter['id']}/replay")
    assert response.status == 409
    assert "user_id: is required" in response.json["detail"]
    assert sidecar.job(body["id"]) is None
    assert len(dead_letters(api)) == 1


def test_copies_by_header_are_not_repeated_by_a_replay(sidecar, host):
    sidecar.start("consumer").ready()
    # The broker delivers it to both queues: `request` is not a result.
    host.publish("request", b"{}", headers={"CC": ["result"], "own": "kept"})
    api = start_api(sidecar)
    letters = dead_letters(api, 2)
    assert [set(letter["headers"]) & {"CC", "own"} for letter in letters] == [{"own"}, {"own"}]
    assert api.post(f"/dead/{letters[0]['id']}/replay").status == 200
    dead_letters(api, 2)


def test_a_large_rejected_body_is_cut_and_not_replayed(sidecar, host):
    sidecar.start("consumer", SCHEDULER_TENANT_BY="user_id").ready()
    kept, large = b"x" * MAX_BODY, b"y" * (MAX_BODY + 1)
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    for body in (kept, large):
        host.publish("request", body, headers={"x-rejected-body-cut": 7}, reply_to=replies)
        host.get(replies)
    api = start_api(sidecar)
    letters = {letter["size"]: letter for letter in dead_letters(api, 2)}
    assert set(letters) == {MAX_BODY}
    _, properties, body = host.get("scheduler_dead")
    assert (body, "x-rejected-body-cut" in properties.headers) == (kept, False)
    _, properties, body = host.get("scheduler_dead")
    assert (body, properties.headers["x-rejected-body-cut"]) == (large[:MAX_BODY], len(large))
    host.publish("request", body, "schedule.dead", headers=properties.headers)
    [letter] = dead_letters(api)
    response = api.post(f"/dead/{letter['id']}/replay")
    assert response.status == 409
    assert "its body was cut" in response.json["detail"]
