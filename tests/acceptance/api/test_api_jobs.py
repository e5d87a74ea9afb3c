"""Jobs through the API: made, shown, replaced, paused, resumed, triggered and cancelled, as by commands."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from scheduler.api import cursors

JOB = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"
RUN_AT = "2099-01-01T00:00:00.000000Z"


def test_a_job_is_created_shown_replaced_and_cancelled(api):
    response = api.post("/jobs", {"job_type": "invoice.reminder", "payload": {"invoice": 42}, "run_at": RUN_AT})
    assert response.status == 201, response.body
    job = response.json
    assert (job["status"], job["next_run_at"], job["payload"]) == ("pending", RUN_AT, {"invoice": 42})
    shown = api.get(f"/jobs/{job['id']}")
    assert (shown.status, shown.json, shown.headers["ETag"]) == (200, job, response.headers["ETag"])
    again = api.post("/jobs", {"id": job["id"], "job_type": "invoice.reminder", "payload": {"invoice": 42},
                               "run_at": RUN_AT})
    assert (again.status, again.json) == (200, job)
    other = api.post("/jobs", {"id": job["id"], "job_type": "another", "run_at": RUN_AT})
    assert (other.status, other.headers["Content-Type"]) == (409, "application/problem+json")
    put = api.ask("PUT", f"/jobs/{job['id']}", {"job_type": "another", "cron": "0 9 * * *"})
    assert (put.status, put.json["job_type"], put.json["cron"]) == (200, "another", "0 9 * * *")
    old = api.ask("DELETE", f"/jobs/{job['id']}", headers={"If-Match": shown.headers["ETag"]})
    assert old.status == 412
    new = api.ask("DELETE", f"/jobs/{job['id']}", headers={"If-Match": put.headers["ETag"]})
    assert (new.status, new.json["status"]) == (200, "cancelled")
    # POST creates jobs and changes none, not even a cancelled one. PUT starts it again.
    wanted = {"job_type": "another", "cron": "0 9 * * *"}
    again = api.post("/jobs", wanted | {"id": job["id"]})
    assert (again.status, again.json["status"]) == (200, "cancelled")
    other = api.post("/jobs", wanted | {"id": job["id"], "name": "new"})
    assert (other.status, "use PUT" in other.json["detail"]) == (409, True)
    put = api.ask("PUT", f"/jobs/{job['id']}", wanted)
    assert (put.status, put.json["status"]) == (200, "pending")


def test_equivalent_requests_are_unchanged(api):
    def post(payload, body):
        fields = f'"id": "{job_id}", "job_type": "spelt", "run_at": "{RUN_AT}"'
        target = f'{{"webhook": {{"url": "https://example.org/", "body": {body}}}}}'
        return api.post("/jobs", f'{{{fields}, "payload": {payload}, "target": {target}}}'.encode())

    job_id = str(uuid4())
    response = post('{"a": 1, "b": ["é", 1.5]}', '{"c": 1, "d": 2}')
    assert response.status == 201, response.body
    again = post('{"b":["\\u00e9",1.5],"a":1}', '{"d":2,"c":1}')
    assert (again.status, again.json, again.headers["ETag"]) == (200, response.json, response.headers["ETag"])
    for other in ('{"a": 1, "b": ["é", 1.50000000000000000001]}', '{"a": true, "b": ["é", 1.5]}',
                  '{"a": 1.0, "b": ["é", 1.5]}', '{"a": 1, "b": [1.5, "é"]}'):
        assert post(other, '{"c": 1, "d": 2}').status == 409, other
    assert post('{"a": 1, "b": ["é", 1.5]}', '{"c": 1, "d": 3}').status == 409


@pytest.mark.parametrize("fields", [
    {"run": {}}, {"run": {"timeout": 5, "delay": 2.5}}, {"run": {"backoff": [1, 2]}}, {"run": {"overlap": "wait"}},
    {"target": {"command": {"name": "report", "arguments": ["--day"]}}}, {"every": 60, "max_lateness": 5},
    {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "on_missed": "skip"},
    {"run_at": None, "rrule": "FREQ=DAILY"}, {"run_at": None, "manual": True}, {"run_at": "now"},
    {"priority": "high", "route": "mails.fast", "name": "A name"},
])
def test_repeating_a_request_changes_nothing(api, fields):
    asked = {"id": str(uuid4()), "job_type": "again", "run_at": RUN_AT} | fields
    asked = {name: value for name, value in asked.items() if value is not None}
    response = api.post("/jobs", asked)
    again = api.post("/jobs", asked)
    assert (response.status, again.status, again.json) == (201, 200, response.json), again.body
    assert api.post("/jobs", asked | {"run": {"max_attempts": 7}}).status == 409


def test_a_job_is_paused_resumed_and_triggered(api):
    job = api.job()
    assert api.post(f"/jobs/{job['id']}/pause").json["status"] == "paused"
    assert api.post(f"/jobs/{job['id']}/resume").json["status"] == "pending"
    assert api.post(f"/jobs/{job['id']}/trigger").status == 200
    for verb in ("pause", "resume", "trigger"):
        assert api.post(f"/jobs/{uuid4()}/{verb}").status == 404


def test_a_command_issued_in_the_far_future_is_422(api):
    job, stamp = api.job(), {"issued_at": "2090-01-01T00:00:00Z"}
    asked = [("PUT", "", {"job_type": "a", "every": 60}), ("DELETE", "", {})]
    asked += [("POST", f"/{verb}", {}) for verb in ("pause", "resume", "trigger")]
    for method, path, body in asked:
        answer = api.ask(method, f"/jobs/{job['id']}{path}", body | stamp)
        assert (answer.status, set(answer.errors)) == (422, {"issued_at"}), (method, path, answer.body)
    assert api.get(f"/jobs/{job['id']}").json == job


def test_a_trigger_of_a_cancelled_job_is_a_conflict(api, shared):
    job = api.job()
    api.ask("DELETE", f"/jobs/{job['id']}")
    answer = api.post(f"/jobs/{job['id']}/trigger")
    assert (answer.status, "cancelled" in answer.json["detail"]) == (409, True)
    done = api.job()
    shared.sql("UPDATE jobs SET status = 'done', next_run_at = NULL WHERE id = %s", done["id"])
    assert api.post(f"/jobs/{done['id']}/trigger").json["status"] == "pending"
    api.ask("DELETE", f"/jobs/{done['id']}")
    assert api.post(f"/jobs/{done['id']}/trigger").status == 409
    assert shared.sql("SELECT 1 FROM jobs WHERE triggers <> '{}' AND id IN (%s, %s)", job["id"], done["id"]) == []


def test_pages_continue_where_the_last_one_ended(api):
    ids = [api.job(job_type=f"list.{n % 2}", name=f"Number {n}")["id"] for n in range(7)]
    seen, after = [], None
    while True:
        page = api.get("/jobs", limit=3, after=after).json
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == ids[::-1]
    assert [item["id"] for item in api.get("/jobs", job_type="list.1").json["items"]] == ids[5::-2]
    assert len(api.get("/jobs", q="Number 3").json["items"]) == 1
    assert [item["id"] for item in api.get("/jobs", q=ids[2][:9].upper()).json["items"]] == [ids[2]]
    assert len(api.get("/jobs", q="list.").json["items"]) == 7
    assert api.get("/jobs", q="Number 3%").json["items"] == []


@pytest.mark.parametrize(("path", "query", "field"), [
    ("/jobs", {"limit": 201}, "limit"), ("/jobs", {"limit": 0}, "limit"), ("/jobs", {"colour": "red"}, "colour"),
    ("/jobs", {"status": "sad"}, "status"), ("/jobs", {"after": "x"}, "after"), ("/jobs", {"q": "a\0b"}, "q"),
    ("/runs", {"since": "yesterday"}, "since"), ("/jobs/x", {}, "id"),
    (f"/jobs/{JOB}/occurrences", {"start": RUN_AT}, "start"), (f"/jobs/{JOB}/occurrences", {"end": RUN_AT}, "end"),
])
def test_query_errors_are_reported_by_field(api, path, query, field):
    answer = api.get(path, **query)
    assert (answer.status, set(answer.errors)) == (422, {field})


@pytest.mark.parametrize(("path", "kind"), [
    ("/jobs", "jobs"), ("/runs", "runs"), ("/audit", "audit"), ("/delayed", "delayed"),
])
@pytest.mark.parametrize("key", ["1" + "0" * 19, "1" + "9" * 19, f"1{JOB}", JOB])
def test_a_forged_cursor_is_a_position_or_422(served, path, kind, key):
    answer = served.get(path, after=cursors.write(kind, datetime(2026, 11, 18, tzinfo=UTC), key))
    assert answer.status in (200, 422), answer.body
