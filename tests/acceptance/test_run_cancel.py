"""An operator cancels one open run, through the API and on the command line, with real processes."""

import json
import os
import subprocess
import sys
from uuid import uuid4

from api_support import start_api
from support import DEADLINE, iso, until, utc


def cli(up, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "scheduler", "run", *arguments], env=os.environ | up.env, capture_output=True,
        text=True, timeout=DEADLINE, check=False,
    )


def delivered(up, host, **run):
    """Request a tracked job and return its first event once the run is stored."""
    host.request(run_at=iso(utc()), run=run)
    [event] = host.due()
    event_id = event["event_id"]
    until(lambda: up.sql("SELECT 1 FROM runs WHERE event_id = %s AND status = 'delivered'", event_id), "the run")
    return event_id


def test_a_cancelled_run_ends_once_and_a_late_success_still_counts(sidecar, host):
    up = sidecar.up()
    api = start_api(up)
    announced = host.listen("schedule.events", "finished")
    event_id = delivered(up, host, backoff=[0], max_attempts=5)
    cancelled = api.post(f"/runs/{event_id}/cancel")
    assert (cancelled.status, cancelled.json["status"], cancelled.json["attempt"]) == (200, "cancelled", 1)
    finished = json.loads(host.get(announced)[2])
    assert (finished["event_id"], finished["status"], finished["attempts"]) == (event_id, "cancelled", 1)
    again = api.post(f"/runs/{event_id}/cancel")
    assert (again.status, again.json["finished_at"]) == (200, cancelled.json["finished_at"])

    # A failure that would have been retried at once changes nothing.
    assert api.post(f"/runs/{event_id}/result", {"status": "failed", "attempt": 1}).json["status"] == "cancelled"
    late = api.post(f"/runs/{event_id}/result", {"status": "succeeded", "attempt": 1})
    assert late.json["status"] == "succeeded"
    assert json.loads(host.get(announced)[2])["status"] == "succeeded"
    assert [each["run"]["attempt"] for each in map(json.loads, host.drain("mainapp_due"))] == []
    assert api.post(f"/runs/{event_id}/cancel").status == 409
    entries = api.get("/audit", kind="run", id=event_id, action="cancel").json["items"]
    assert [(entry["who"], entry["via"], entry["after"]["status"]) for entry in entries] == [
        ("admin of all", "api", "cancelled")]


def test_waiting_runs_can_be_cancelled_and_dead_ones_cannot(sidecar, host):
    up = sidecar.up()
    api = start_api(up)
    waiting, dead = delivered(up, host, backoff=[3600]), delivered(up, host, max_attempts=1)
    for event_id, status in ((waiting, "waiting"), (dead, "dead")):
        failed = api.post(f"/runs/{event_id}/result", {"status": "failed", "attempt": 1})
        assert failed.json["status"] == status
    answer = api.post(f"/runs/{waiting}/cancel").json
    assert (answer["status"], answer["retry_at"]) == ("cancelled", None)
    conflict = api.post(f"/runs/{dead}/cancel")
    assert (conflict.status, "dead" in conflict.json["detail"]) == (409, True)
    assert api.get(f"/runs/{dead}").json["status"] == "dead"
    assert api.post(f"/runs/{waiting}/retry").json["status"] == "waiting"
    [event] = host.due()
    assert (event["event_id"], event["run"]["attempt"]) == (waiting, 2)


def test_only_operators_of_the_runs_tenant_cancel_it(sidecar, host):
    up = sidecar.up()
    api = start_api(up)
    event_id = delivered(up, host)
    assert api.post(f"/runs/{uuid4()}/cancel").status == 404
    assert api.as_("operator", "acme").post(f"/runs/{event_id}/cancel").status == 404
    assert api.as_("viewer").post(f"/runs/{event_id}/cancel").status == 403
    assert api.get(f"/runs/{event_id}").json["status"] == "delivered"
    assert api.as_("operator", "default").post(f"/runs/{event_id}/cancel").json["status"] == "cancelled"


def test_cancelling_a_run_releases_its_held_job(sidecar, host):
    up = sidecar.up()
    api = start_api(up)
    job = host.request(run_at=iso(utc()), every=1, run={"overlap": "wait"})
    [event] = host.due()
    until(lambda: up.sql("SELECT 1 FROM jobs WHERE id = %s AND held_by IS NOT NULL", job), "the job to wait")
    assert api.post(f"/runs/{event['event_id']}/cancel").status == 200
    assert host.due()[0]["job_id"] == job


def test_the_command_line_cancels_a_run(sidecar, host):
    up = sidecar.up()
    first, second = delivered(up, host), delivered(up, host)
    done = cli(up, "cancel", first)
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "cancelled")
    done = cli(up, "cancel", second, "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "cancelled")
    unknown = cli(up, "cancel", str(uuid4()))
    assert (unknown.returncode, "no run has" in unknown.stderr) == (1, True)
    host.publish("result", {"event_id": first, "attempt": 1, "status": "succeeded"})
    until(lambda: json.loads(cli(up, "show", first, "--json").stdout)["status"] == "succeeded", "the late success")
    ended = cli(up, "cancel", first)
    assert (ended.returncode, "succeeded" in ended.stderr) == (1, True)
