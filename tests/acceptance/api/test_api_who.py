"""Who triggered a run, and which producer emitted it."""

import json
import os
import subprocess
import sys

from support import DEADLINE, iso, until, utc


def command(sidecar, *arguments):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_"))}
    done = subprocess.run([sys.executable, "-m", "scheduler", *arguments], env=clean | sidecar.env, check=True,
                          capture_output=True, text=True, timeout=DEADLINE)
    return done.stdout


def test_a_run_names_who_triggered_it_and_the_producer_that_emitted_it(served, shared, shared_host):
    api = served.as_("operator", "who", sub="ann")
    finished = shared_host.listen("schedule.events", "finished")
    job = api.job(run_at=iso(utc()), run={})["id"]

    def runs():
        return api.get(f"/jobs/{job}/runs").json["items"]

    [first] = until(runs, "its run")
    assert first["triggered_by"] == {"via": "schedule", "who": None}
    producers = {item["id"] for item in served.get("/replicas").json["items"] if item["role"] == "producer"}
    assert first["emitted_by"] in producers

    api.post(f"/jobs/{job}/trigger")
    api.post(f"/jobs/{job}/trigger")
    shared_host.publish("trigger", {"id": job, "tenant": "who"})
    until(lambda: len(runs()) == 4, "all runs")
    assert sorted((run["triggered_by"]["via"], run["triggered_by"]["who"]) for run in runs()
                  if run["origin"] == "trigger" and run["triggered_by"]["who"]) == [("api", "ann")] * 2
    assert {run["triggered_by"]["via"] for run in runs()} == {"schedule", "api", "amqp"}
    whole = api.get(f"/runs/{runs()[-1]['event_id']}").json
    assert whole["triggered_by"] == runs()[-1]["triggered_by"]
    for run in runs():
        shown = command(shared, "run", "show", run["event_id"], "--json")
        assert json.loads(shown)["triggered_by"] == run["triggered_by"]
    [by_ann, *_] = (run for run in runs() if run["triggered_by"]["who"] == "ann")
    shown = command(shared, "run", "show", by_ann["event_id"])
    assert ", by a trigger of ann (api)" in shown
    assert by_ann["emitted_by"] in shown
    assert shared.sql("SELECT emitted_by FROM runs WHERE event_id = %s", first["event_id"]) == [
        {"emitted_by": first["emitted_by"]}]

    open_runs, bodies = runs(), []
    for run in open_runs:
        api.post(f"/runs/{run['event_id']}/result", {"attempt": 1, "status": "succeeded"})

    def ends():
        bodies.extend(map(json.loads, shared_host.drain(finished)))
        return {each["event_id"]: each.get("triggered_by") for each in bodies if each["job_id"] == job}

    until(lambda: len(ends()) == 4, "every ScheduleFinished")
    callers = {run["event_id"]: run["triggered_by"] for run in open_runs if run["origin"] == "trigger"}
    assert {event_id: caller for event_id, caller in ends().items() if caller is not None} == callers
