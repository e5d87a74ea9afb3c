"""Versions of a job, restoring one of them, and purging a job."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from support import DEADLINE, iso, until, utc

WORDS = "a-word-of-this-customer"


def versions(api, job, **query):
    response = api.get(f"/jobs/{job}/versions", **query)
    assert response.status == 200, response
    return response.json["items"]


def test_versions_are_the_requests_that_defined_the_job(shared, served, shared_host):
    job = shared_host.request(job_type="report", payload={"of": 1.50}, every="PT1H", name="first")
    shared.stored(job)
    api = served.as_("operator")
    [only] = versions(api, job)
    assert (only["version"], only["via"]) == (1, "amqp")
    assert (only["request"]["payload"], only["request"]["every"]) == ({"of": 1.5}, 3600)

    hook = {"webhook": {"url": "https://example.org/x", "headers": {"authorization": "Bearer abc"}}}
    whole = {"job_type": "report", "payload": {"of": 2}, "cron": "0 7 * * *", "timezone": "Europe/Berlin",
             "target": hook}
    assert api.ask("PUT", f"/jobs/{job}", whole).status == 200
    assert api.ask("PUT", f"/jobs/{job}", whole).status == 200, "which changes nothing"
    api.post(f"/jobs/{job}/pause")
    second, first = versions(api, job)
    assert first == only
    assert (second["version"], second["via"], second["request"]["cron"]) == (2, "api", "0 7 * * *")
    assert second["by"]
    assert second["request"]["target"]["webhook"]["headers"]["authorization"] == "***"
    assert served.as_("viewer", "acme").get(f"/jobs/{job}/versions").status == 404

    restored = api.post(f"/jobs/{job}/versions/1/restore").json
    assert (restored["every"], restored["payload"], restored["name"]) == (3600, {"of": 1.5}, "first")
    assert restored["target"] is None
    assert api.post(f"/jobs/{job}/versions/2/restore").json["cron"] == "0 7 * * *"
    stored = shared.sql("SELECT target::text FROM jobs WHERE id = %s", job)[0]["target"]
    assert json.loads(stored) == hook, "a restore keeps the credential, not its mask"
    page = api.get(f"/jobs/{job}/versions", limit=3).json
    assert [item["version"] for item in page["items"]] == [4, 3, 2]
    assert [item["version"] for item in versions(api, job, after=page["next"])] == [1]

    # A version does not say whether the job is paused: it is still paused.
    assert restored["status"] == "paused"
    assert "paused" not in page["items"][0]["request"]

    api.ask("DELETE", f"/jobs/{job}")
    assert api.post(f"/jobs/{job}/versions/4/restore").json["status"] == "pending"
    assert versions(api, job)[0]["version"] == 5
    assert api.post(f"/jobs/{job}/versions/9/restore").status == 404
    assert api.post(f"/jobs/{job}/versions/x/restore").status == 422
    assert served.as_("viewer").post(f"/jobs/{job}/versions/1/restore").status == 403


def test_the_creator_is_the_first_request_and_not_a_cancel_before_it(shared, served, shared_host):
    by_api, by_amqp = str(uuid4()), str(uuid4())
    for job in (by_api, by_amqp):
        shared_host.publish("cancel", {"id": job})
        shared.stored(job, "cancelled")
    cancelled = "UPDATE jobs SET created_at = created_at - interval '1 hour', created_by = 'someone' WHERE id = %s"
    request = {"job_type": "late", "every": "PT1H", "run_at": "2099-01-01T00:00:00Z"}
    for job in (by_api, by_amqp):
        shared.sql(cancelled, job)
    api = served.as_("operator")
    asked = datetime.now(UTC) - timedelta(minutes=30)
    assert api.ask("PUT", f"/jobs/{by_api}", request).status == 201
    shared_host.request(id=by_amqp, **request)
    shared.stored(by_amqp, "pending")
    for job, via, by in ((by_api, "api", "operator of all"), (by_amqp, "amqp", None)):
        body = api.get(f"/jobs/{job}").json
        [only] = versions(api, job)
        assert (only["via"], only["by"]) == (via, by)
        assert body["created_by"] == by
        assert datetime.fromisoformat(only["at"]) == datetime.fromisoformat(body["created_at"]) > asked
    assert {by_api, by_amqp} <= {item["id"] for item in api.get("/jobs", job_type="late").json["items"]}


def test_the_newest_hundred_versions_are_kept(shared, served, shared_host):
    job = str(uuid4())
    for number in range(105):
        shared_host.request(id=job, job_type="report", payload={"n": number}, every="PT1H")
    newest = "SELECT 1 FROM job_versions WHERE job_id = %s AND version = 105"
    until(lambda: shared.sql(newest, job), "the last one")
    items = versions(served.as_("viewer"), job, limit=200)
    assert [item["version"] for item in items] == list(range(105, 5, -1))
    assert [item["request"]["payload"]["n"] for item in items[:2]] == [104, 103]


@pytest.fixture
def purgeable(served, shared_host):  # noqa: ARG001 - its processes work
    """A job with history, versions, audit entries and an open run, all of which contain the same words."""
    api = served.as_("operator", "acme")
    job = api.job(job_type=WORDS, name=WORDS, payload={"a": WORDS}, run_at=iso(utc()), run={})["id"]
    run = until(lambda: api.get(f"/jobs/{job}/runs").json["items"], "its run")[0]["event_id"]
    body = {"attempt": 1, "status": "succeeded", "output": {"said": WORDS}}
    until(lambda: api.post(f"/runs/{run}/result", body).json.get("status") == "succeeded", "the run's end")
    later = iso(utc() + timedelta(hours=1))
    request = {"job_type": WORDS, "payload": {"b": WORDS}, "run_at": later, "run": {}}
    assert api.ask("PUT", f"/jobs/{job}", request).status == 200
    api.post(f"/jobs/{job}/trigger")
    until(lambda: len(api.get(f"/jobs/{job}/runs").json["items"]) == 2, "an open run")
    return job, run


def tables_with_the_words(sidecar):
    tables = sidecar.sql(
        "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')")
    return {table["name"].split(".")[1].rstrip("_0123456789") for table in tables
            if sidecar.sql(f"SELECT 1 FROM {table['name']} AS row WHERE row::text LIKE %s LIMIT 1", f"%{WORDS}%")}


def test_a_purge_erases_everything_but_a_tombstone(shared, served, purgeable):
    job, run = purgeable
    admin = served.as_("admin", "acme")
    assert tables_with_the_words(shared) >= {"jobs", "runs", "run_history", "audit", "job_versions"}
    assert served.as_("operator", "acme").ask("DELETE", f"/jobs/{job}", purge="true").status == 403
    assert served.as_("admin", "other").ask("DELETE", f"/jobs/{job}", purge="true").status == 404
    assert until(lambda: admin.ask("DELETE", f"/jobs/{job}", purge="true").status == 204, "the purge")
    assert tables_with_the_words(shared) == set()
    paths = (f"/jobs/{job}", f"/runs/{run}", f"/jobs/{job}/runs", f"/jobs/{job}/versions")
    assert [admin.get(path).status for path in paths] == [404] * 4
    assert admin.ask("DELETE", f"/jobs/{job}", purge="true").status == 404
    shown = subprocess.run([sys.executable, "-m", "scheduler", "job", "show", job, "--json"], capture_output=True,
                           env=os.environ | shared.env, timeout=DEADLINE, check=False)
    assert shown.returncode == 1, shown.stdout
    entries = [item for item in admin.get("/audit").json["items"] if item["id"] in (job, run)]
    assert entries[0]["action"] == "purge"
    assert {entry["action"] for entry in entries} >= {"request", "trigger", "result"}
    assert all(entry["who"] and entry["before"] is None and entry["after"] is None for entry in entries)

    old = {"job_type": WORDS, "payload": {"c": WORDS}, "run_at": iso(utc()),
           "issued_at": iso(utc() - timedelta(hours=1))}
    assert admin.ask("PUT", f"/jobs/{job}", old).status == 409
    assert tables_with_the_words(shared) == set()
    anew = admin.ask("PUT", f"/jobs/{job}", {"job_type": "anew", "every": "PT1H"})
    assert (anew.status, anew.json["status"]) == (201, "pending")
