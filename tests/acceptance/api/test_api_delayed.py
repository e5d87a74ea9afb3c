"""/delayed: list and cancel, for tokens of all tenants only."""

from uuid import uuid4

import pika
import pytest
from delayed_support import Shop, stored
from support import until

HOUR = 3_600_000


@pytest.fixture(scope="module")
def shop(shared):
    shared.start("consumer").ready()
    made = Shop(shared.amqp_url)
    yield made
    made.close()


def test_delayed_messages_are_listed_shown_and_cancelled(served, shop, shared):
    named = str(uuid4())
    for number in range(5):
        shop.send("many", b"%d" % number, x_delay=HOUR + number)
    shop.send("one", b'{"a": 1}', properties=pika.BasicProperties(message_id=named, headers={"x-delay": 2 * HOUR}))
    rows = stored(shared, 6)
    viewer = served.as_("viewer")

    pages, after = [], None
    for _ in range(3):
        page = viewer.get("/delayed", limit=2, after=after).json
        pages += [item["id"] for item in page["items"]]
        after = page["next"]
    assert pages == [*(str(row["id"]) for row in rows[:5]), named]
    assert after is None
    assert [item["id"] for item in viewer.get("/delayed", routing_key="one").json["items"]] == [named]
    late = rows[4]["due_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert [item["id"] for item in viewer.get("/delayed", since=late).json["items"]] == [str(rows[4]["id"]), named]

    body = viewer.get(f"/delayed/{named}").json
    assert (body["body"], body["headers"], body["exchange"]) == (
        {"a": 1}, {"x-delay": -2 * HOUR}, "schedule.delayed")
    assert body["due_at"] > body["stored_at"]
    for name in (named, str(rows[0]["id"])):
        assert viewer.ask("DELETE", f"/delayed/{name}").status == 403
        answer = served.as_("operator").ask("DELETE", f"/delayed/{name}")
        assert (answer.status, answer.json["id"]) == (200, name)
        assert served.ask("DELETE", f"/delayed/{name}").status == 404
        assert served.get(f"/delayed/{name}").status == 404
    assert len(viewer.get("/delayed").json["items"]) == 4
    cancelled = [str(rows[0]["id"]), named]
    audit = served.get("/audit", kind="delayed").json["items"]  # other tests of this module cancel others
    assert [(entry["action"], entry["id"]) for entry in audit if entry["id"] in cancelled] == [
        ("cancel", job_id) for job_id in cancelled]


def test_the_longest_routing_key_can_be_filtered(served, shop, shared):
    key = "k" * 255
    shop.send(key, b"", x_delay=HOUR)
    [found] = until(lambda: served.get("/delayed", routing_key=key).json["items"], "it to be stored")
    assert found["routing_key"] == key
    shared.sql("DELETE FROM delayed_messages WHERE id = %s", found["id"])
    assert set(served.get("/delayed", routing_key=key + "k").errors) == {"routing_key"}


def test_delayed_messages_belong_to_no_tenant(served, api):
    for method, path in (("GET", "/delayed"), ("GET", f"/delayed/{uuid4()}"), ("DELETE", "/delayed/1")):
        for someone in (api, served.as_("admin", "acme")):
            assert someone.ask(method, path).status == 403
    assert served.as_(None).get("/delayed").status == 403


@pytest.mark.parametrize("tenant", ["acme", "default"])
def test_a_tenant_token_cannot_cancel_a_delayed_message_through_a_job(served, shop, shared, tenant):
    message = str(uuid4())
    shop.send("x", b"", properties=pika.BasicProperties(message_id=message, headers={"x-delay": HOUR}))
    until(lambda: served.get(f"/delayed/{message}").status == 200, "it to be stored")
    someone = served.as_("admin", tenant)
    assert someone.ask("DELETE", f"/jobs/{message}").status == 404
    someone.job(id=message, job_type=f"like.{message}")
    assert someone.ask("DELETE", f"/jobs/{message}").json["status"] == "cancelled"
    assert served.get(f"/delayed/{message}").status == 200
    someone.ask("PUT", f"/jobs/{message}", {"job_type": f"like.{message}", "every": 3600})
    assert someone.post("/jobs/cancel", job_type=f"like.{message}").json == {"matched": 1}
    assert served.get(f"/delayed/{message}").status == 200
    assert served.get("/audit", kind="delayed", id=message).json["items"] == []

    assert served.ask("DELETE", f"/jobs/{message}").status == 200
    assert served.get(f"/delayed/{message}").status == 404
    [entry] = served.get("/audit", kind="delayed", id=message).json["items"]
    assert (entry["action"], entry["via"]) == ("cancel", "api")
    shared.sql("DELETE FROM delayed_messages")


def test_only_a_default_tenant_amqp_cancel_cancels_a_delayed_message(served, shop, shared):
    messages = [str(uuid4()) for _ in range(2)]
    for message in messages:
        shop.send("x", b"", properties=pika.BasicProperties(message_id=message, headers={"x-delay": HOUR}))
        until(lambda message=message: served.get(f"/delayed/{message}").status == 200, "it to be stored")
    shop.publish("cancel", {"id": messages[0], "tenant": "acme"})
    shop.publish("cancel", {"id": messages[1]})
    until(lambda: served.get(f"/delayed/{messages[1]}").status == 404, "the cancel")
    assert served.get(f"/delayed/{messages[0]}").status == 200
    entries = served.get("/audit", kind="delayed").json["items"]
    assert [(entry["id"], entry["via"]) for entry in entries if entry["id"] in messages] == [(messages[1], "amqp")]
    shared.sql("DELETE FROM delayed_messages")


def test_invalid_parameters_are_named(served):
    for path in ("/delayed/x", "/delayed/9999999999999999999999", "/delayed/-1"):
        assert served.get(path).status == 404
    assert "limit" in served.get("/delayed", limit=1000).errors
    assert "after" in served.get("/delayed", after="x").errors
    assert "colour" in served.get("/delayed", colour="red").errors
    assert "since" in served.get("/delayed", since="now").errors
