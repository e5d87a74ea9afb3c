"""Who changed what, whichever way it came: through the API, AMQP or the command line."""

from uuid import uuid4

import pytest
from support import Host, iso, until, utc


@pytest.fixture(scope="module")
def amqp(shared):
    shared.start("consumer").ready()
    host = Host(shared.amqp_url)
    yield host
    host.close()


def test_audit_entries_name_the_author_and_the_changes(api, served):
    job = api.job(name="first")
    request = {"job_type": "test", "run_at": "2099-01-01T00:00:00Z", "name": "second"}
    put = api.ask("PUT", f"/jobs/{job['id']}", request)
    assert (put.json["created_by"], put.json["updated_by"]) == (job["created_by"], job["created_by"])
    assert put.json["updated_at"] > put.json["created_at"] == job["created_at"]
    other = served.as_("operator", job["tenant"], sub="bob")
    assert other.post(f"/jobs/{job['id']}/pause").json["updated_by"] == "bob"
    other.post(f"/jobs/{job['id']}/pause")  # changes no more than when it was said
    entries = served.as_("admin", job["tenant"]).get("/audit").json["items"]
    told = [(entry["action"], entry["who"], entry["via"], entry["kind"], entry["id"]) for entry in entries]
    maker = job["created_by"]
    assert told[-3:] == [
        ("pause", "bob", "api", "job", job["id"]), ("request", maker, "api", "job", job["id"]),
        ("request", maker, "api", "job", job["id"]),
    ]
    paused, replaced, made = entries[-3:]
    assert (paused["before"], paused["after"]) == ({"status": "pending"}, {"status": "paused"})
    assert (replaced["before"]["name"], replaced["after"]["name"]) == ("first", "second")
    assert made["before"] is None
    assert made["after"]["name"] == "first"
    assert made["address"] == "127.0.0.1"


def test_amqp_commands_are_audited(amqp, served):
    admin = served.as_("admin", "amqp")
    body = {"id": str(uuid4()), "job_type": "a", "run_at": iso(utc(days=9)), "tenant": "amqp"}
    amqp.publish("request", body)
    amqp.publish("pause", {"id": body["id"], "tenant": "amqp"})
    until(lambda: len(admin.get("/audit").json["items"]) == 2, "both are listed")
    paused, made = admin.get("/audit").json["items"]
    assert (made["via"], made["action"], made["id"], made["who"]) == ("amqp", "request", body["id"], None)
    assert (paused["via"], paused["action"], paused["after"]) == ("amqp", "pause", {"status": "paused"})
    assert [item["action"] for item in admin.get("/audit", id=body["id"]).json["items"]] == ["pause", "request"]


def test_the_audit_is_paged_and_filtered(api, served):
    tenant = api.job()["tenant"]
    for _ in range(6):
        api.job()
    admin = served.as_("admin", tenant)
    seen, after = [], None
    while True:
        page = admin.get("/audit", limit=3, after=after).json
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 7
    assert seen == [item["id"] for item in admin.get("/audit").json["items"]]
    assert admin.get("/audit", action="pause").json["items"] == []
    assert len(admin.get("/audit", via="api", kind="job", who=f"operator of {tenant}").json["items"]) == 7
