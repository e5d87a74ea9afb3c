"""Literal credentials in a target: stored and sent, never shown, kept by an edit."""

import json
from uuid import uuid4

import pytest
from api_support import start_api

LITERAL = "hunter2-literal"
TARGET = {"webhook": {
    "url": f"https://a.example/x?token={LITERAL}&page=1",
    "headers": {"Authorization": f"Bearer {LITERAL}", "X-Shown": "1", "X-Api-Key": "{{secret.shop}}"},
    "query": {"signature": LITERAL},
}}


@pytest.fixture
def api(sidecar):
    return start_api(sidecar)


def stored(sidecar, job_id):
    return sidecar.sql("SELECT target FROM jobs WHERE id = %s", job_id)[0]["target"]


def test_literal_credentials_are_masked_and_kept_by_edits(sidecar, api):
    stored_job = api.job(target=TARGET)
    job_id = stored_job["id"]
    for role in ("viewer", "operator", "admin"):
        who = api.as_(role, "default")
        for path in (f"/jobs/{job_id}", "/jobs"):
            text = who.get(path).body.decode()
            assert LITERAL not in text
            assert "***" in text
    shown = api.get(f"/jobs/{job_id}").json["target"]
    assert shown["webhook"] == {
        "url": "https://a.example/x?token=***&page=1", "query": {"signature": "***"},
        "headers": {"Authorization": "***", "X-Shown": "1", "X-Api-Key": "{{secret.shop}}"},
    }
    assert LITERAL not in json.dumps(stored_job)
    assert LITERAL not in api.page(f"/jobs/{job_id}")
    assert LITERAL not in api.page(f"/jobs/{job_id}/edit")

    shown["webhook"]["headers"]["X-Shown"] = "2"
    request = {"job_type": "test", "run_at": "2099-01-01T00:00:00Z", "target": shown}
    answer = api.ask("PUT", f"/jobs/{job_id}", request)
    assert answer.status == 200, answer.body
    assert answer.json["target"] == shown
    kept = stored(sidecar, job_id)
    kept = json.loads(kept) if isinstance(kept, str) else kept
    assert kept["webhook"] == TARGET["webhook"] | {
        "headers": TARGET["webhook"]["headers"] | {"X-Shown": "2"}}
    same = api.post("/jobs", {"id": job_id} | request)
    assert same.status == 200, same.body

    audit = api.get("/audit", id=job_id)
    assert [item["action"] for item in audit.json["items"]] == ["request", "request"]
    assert LITERAL not in audit.body.decode()
    assert LITERAL not in json.dumps(sidecar.sql("SELECT before, after FROM audit"), default=str)
    assert LITERAL not in api.page("/audit")


def test_a_mask_is_not_stored_and_does_not_send_a_credential_elsewhere(api):
    job_id = api.job(target=TARGET)["id"]
    request = {"job_type": "test", "run_at": "2099-01-01T00:00:00Z"}
    elsewhere = {"webhook": {"url": "https://evil.example/", "headers": {"Authorization": "***"}}}
    for method, path in (("PUT", f"/jobs/{job_id}"), ("PUT", f"/jobs/{uuid4()}"), ("POST", "/jobs")):
        answer = api.ask(method, path, request | {"target": elsewhere})
        assert answer.status == 422, (method, path, answer.body)
        assert "Authorization is ***" in answer.errors["target.webhook.headers"]
    other = api.as_("operator", "acme").ask("PUT", f"/jobs/{job_id}", request | {
        "target": {"webhook": {"url": "https://a.example/", "headers": {"Authorization": "***"}}}})
    assert other.status in (404, 422)
    assert LITERAL not in other.body.decode()
