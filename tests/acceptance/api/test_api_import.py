"""POST /jobs/import: many requests as NDJSON, and a line about each."""

import json
from uuid import uuid4

import pytest
from support import iso, until, utc

LATER = "2099-01-01T00:00:00Z"


def request(**fields):
    return {"id": str(uuid4()), "job_type": "imported", "run_at": LATER} | fields


def body(*lines):
    return b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)


def send(api, content, status=200):
    answer = api.ask("POST", "/jobs/import", content, {"Content-Type": "application/x-ndjson"})
    assert answer.status == status, answer.body[:500]
    if status != 200:
        return answer
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


def test_each_line_is_stored_or_reported_in_order(api):
    first, second, no_id = request(name="one"), request(cron="0 9 * * 1", run_at=None), request()
    del second["run_at"], no_id["id"]
    lines = send(api, body(first, b"", b"not json", {**request(), "colour": "red"}, b"  \r", no_id, second, b""))
    assert [line["line"] for line in lines] == [1, 3, 4, 6, 7]
    assert lines[0] == {"line": 1, "id": first["id"], "status": "scheduled"}
    assert lines[4] == {"line": 7, "id": second["id"], "status": "scheduled"}
    assert [[error["field"] for error in line["errors"]] for line in lines[1:4]] == [["body"], ["colour"], ["id"]]
    assert all(set(line) == {"line", "errors"} for line in lines[1:4])
    assert api.get(f"/jobs/{first['id']}").json["name"] == "one"
    assert api.get(f"/jobs/{second['id']}").json["cron"] == "0 9 * * 1"


def test_a_repeated_line_is_unchanged_and_a_different_one_replaces_the_job(api):
    line = request(payload={"a": 1}, rrule="FREQ=DAILY")
    assert send(api, body(line, line)) == [
        {"line": 1, "id": line["id"], "status": "scheduled"}, {"line": 2, "id": line["id"], "status": "unchanged"}]
    before = api.get(f"/jobs/{line['id']}")
    assert send(api, body(line))[0]["status"] == "unchanged"
    after = api.get(f"/jobs/{line['id']}")
    assert (after.headers["ETag"], after.json) == (before.headers["ETag"], before.json)
    assert send(api, body(line | {"payload": {"a": 2}}))[0]["status"] == "scheduled"
    assert api.get(f"/jobs/{line['id']}").json["payload"] == {"a": 2}
    assert send(api, body(line | {"issued_at": "2020-01-01T00:00:00Z"}))[0]["status"] == "superseded"
    assert api.ask("DELETE", f"/jobs/{line['id']}").status == 200
    assert send(api, body(line))[0]["status"] == "scheduled"
    assert api.get(f"/jobs/{line['id']}").json["status"] == "pending"


def test_imports_use_the_tokens_tenant_and_role(served):
    acme, line = served.as_("operator", "acme"), request()
    assert send(acme, body(line))[0]["status"] == "scheduled"
    assert acme.get(f"/jobs/{line['id']}").json["tenant"] == "acme"
    for other in (served, served.as_("operator", "umbrella")):
        [answer] = send(other, body(line))
        assert answer["errors"] == [{"field": "id", "problem": "is not available"}]
    [answer] = send(acme, body(request(tenant="umbrella")))
    assert [error["field"] for error in answer["errors"]] == ["tenant"]
    assert send(served, body(line | {"tenant": "acme"}))[0]["status"] == "unchanged"
    assert send(served.as_("viewer"), body(request()), 403)
    entries = served.get("/audit", kind="job", id=line["id"]).json["items"]
    assert [(entry["who"], entry["via"], entry["action"]) for entry in entries] == [
        ("operator of acme", "api", "request")]


def test_ten_thousand_lines_are_stored_and_one_more_stores_nothing(api):
    lines = [request(job_type="bulk") for _ in range(10_001)]
    assert send(api, body(*lines), 422).json["errors"][0]["field"] == "body"
    assert send(api, body(lines[0]) + b"\n" * 10_001, 422).json["errors"][0]["field"] == "body"
    assert api.get("/jobs", job_type="bulk").json["items"] == []
    stored = send(api, body(*lines[:10_000]))
    assert [(each["line"], each["id"], each["status"]) for each in stored] == [
        (number, line["id"], "scheduled") for number, line in enumerate(lines[:10_000], 1)]
    assert api.get("/stats").json["jobs"]["pending"] == 10_000


def test_a_body_above_the_limit_stores_nothing(api):
    large = request(payload={"text": "x" * 200_000})
    ids = [str(uuid4()) for _ in range(10)]
    assert {line["status"] for line in send(api, body(*(large | {"id": each} for each in ids)))} == {"scheduled"}
    line = request()
    assert send(api, body(line) + b"\n" + b" " * 32_000_000, 413)
    assert api.get(f"/jobs/{line['id']}").status == 404


@pytest.mark.usefixtures("shared_host")
def test_imported_jobs_run(api):
    line = request(run_at=iso(utc()), run={})
    assert send(api, body(line))[0]["status"] == "scheduled"
    until(lambda: api.get(f"/jobs/{line['id']}/runs").json["items"], "its run")
