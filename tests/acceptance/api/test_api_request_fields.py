"""The fields manual, paused, description, run_at now and run.max_running over the API."""

from uuid import uuid4

import pytest

RUN_AT = "2099-01-01T00:00:00.000000Z"


def test_a_job_without_a_schedule(api):
    asked = {"id": str(uuid4()), "job_type": "manual", "manual": True, "description": "On demand"}
    response = api.post("/jobs", asked)
    assert response.status == 201, response.body
    job = response.json
    names = ("manual", "status", "next_run_at", "run_at", "rrule", "cron", "every", "description")
    assert [job[name] for name in names] == [True, "pending", None, None, None, None, None, "On demand"]
    again = api.post("/jobs", asked)
    assert (again.status, again.json, again.headers["ETag"]) == (200, job, response.headers["ETag"])
    assert api.post("/jobs", asked | {"description": "Another"}).status == 409
    scheduled = {name: value for name, value in asked.items() if name != "manual"} | {"run_at": RUN_AT}
    assert api.post("/jobs", scheduled).status == 409
    assert api.get(f"/jobs/{job['id']}/occurrences").json == {"items": [], "next": None}
    put = api.ask("PUT", f"/jobs/{job['id']}", scheduled)
    assert (put.json["manual"], put.json["next_run_at"]) == (False, RUN_AT)
    assert api.post("/jobs", asked).status == 409
    put = api.ask("PUT", f"/jobs/{job['id']}", asked)
    assert (put.json["manual"], put.json["next_run_at"], put.json["status"]) == (True, None, "pending")
    both = api.post("/jobs", {"job_type": "both", "manual": True, "cron": "@daily"})
    assert (both.status, both.errors.keys()) == (422, {"manual", "cron"})


def test_run_at_now_is_the_time_of_storing(api):
    asked = {"id": str(uuid4()), "job_type": "now", "run_at": "now"}
    response = api.post("/jobs", asked)
    assert (response.status, response.json["run_at"]) == (201, response.json["created_at"])
    assert api.post("/jobs", asked).status == 200
    assert api.post("/jobs", asked | {"run_at": RUN_AT}).status == 409
    renamed = api.ask("PUT", f"/jobs/{asked['id']}", asked | {"name": "new"})
    assert renamed.json["run_at"] == response.json["run_at"]


def test_a_job_is_stored_paused_and_its_trigger_waits(api):
    asked = {"id": str(uuid4()), "job_type": "later", "run_at": RUN_AT, "paused": True}
    response = api.post("/jobs", asked)
    assert (response.status, response.json["status"]) == (201, "paused")
    triggered = api.post(f"/jobs/{asked['id']}/trigger")
    assert (triggered.status, triggered.json["status"]) == (200, "paused")
    assert api.post("/jobs", asked).status == 200
    absent = {name: value for name, value in asked.items() if name != "paused"}
    assert api.ask("PUT", f"/jobs/{asked['id']}", absent).json["status"] == "paused"
    resumed = api.ask("PUT", f"/jobs/{asked['id']}", asked | {"paused": False})
    assert resumed.json["status"] == "pending"
    assert api.post("/jobs", asked).status == 409  # it is not paused any more
    assert api.post("/jobs", absent).status == 200


def test_a_trigger_needs_a_job_that_is_not_cancelled(api):
    assert api.post(f"/jobs/{uuid4()}/trigger").status == 404
    job = api.job(run_at=None, manual=True)
    assert api.ask("DELETE", f"/jobs/{job['id']}").status == 200
    assert api.post(f"/jobs/{job['id']}/trigger").status == 409


def test_the_number_of_open_runs_is_part_of_the_policy(api):
    job = api.job(run={"overlap": "wait", "max_running": 3})
    assert job["run"]["max_running"] == 3
    assert api.job(run={"overlap": "skip"})["run"]["max_running"] is None
    wrong = api.post("/jobs", {"job_type": "a", "run_at": RUN_AT, "run": {"max_running": 3}})
    assert (wrong.status, wrong.errors.keys()) == (422, {"run.max_running"})


@pytest.mark.parametrize(("fields", "number"), [
    ({"manual": True}, 0), ({"run_at": "now"}, 1), ({"run_at": "now", "every": 60, "count": 3}, 3),
    ({"run_at": "now", "after": "2020-01-01T00:00:00Z"}, 1), ({"manual": False, "cron": "@daily"}, 10),
])
def test_a_preview(api, fields, number):
    page = api.post("/preview", fields)
    assert (page.status, len(page.json["items"])) == (200, number), page.body


def test_an_import_pauses_only_what_is_not_paused(api):
    def store(paused):
        line = f'{{"id": "{job_id}", "job_type": "a", "run_at": "{RUN_AT}", "paused": {paused}}}\n'
        [result] = api.post("/jobs/import", line.encode()).body.splitlines()
        return result.decode().rpartition('"status": "')[2].rpartition('"')[0] or result

    job_id = str(uuid4())
    statuses = [store(paused) for paused in ("true", "true", "false", "false")]
    assert statuses == ["scheduled", "unchanged", "scheduled", "unchanged"]
    assert api.get(f"/jobs/{job_id}").json["status"] == "pending"
