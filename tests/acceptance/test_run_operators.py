"""An operator finds a dead run and retries it, with real processes."""

import json
import os
import subprocess
import sys

from support import DEADLINE, iso, until, utc


def scheduler(up, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", "run", *arguments], env=os.environ | up.env, capture_output=True,
        text=True, timeout=DEADLINE, check=True,
    )
    return done.stdout


def report(host, event, status, **fields):
    attempt = {"event_id": event["event_id"], "attempt": event["run"]["attempt"]}
    host.publish("result", attempt | {"status": status} | fields)


def listed(up, status):
    return [run["event_id"] for run in json.loads(scheduler(up, "list", "--status", status, "--json"))]


def test_a_dead_run_is_listed_retried_and_exported(sidecar, host):
    up = sidecar.up()
    host.request(run_at=iso(utc()), run={"backoff": [0], "max_attempts": 2}, job_type="invoice.reminder")
    for number in (1, 2):
        [event] = host.due()
        assert event["run"]["attempt"] == number
        report(host, event, "running", worker="billing-1")
        report(host, event, "failed", error="card declined", worker="billing-1")
    event_id = event["event_id"]
    until(lambda: event_id in listed(up, "dead"), "a dead run")
    assert "Attempt 2 failed at" in scheduler(up, "show", event_id)
    assert scheduler(up, "retry", event_id) == "scheduled: attempt 3 is due now\n"
    [event] = host.due()
    assert (event["event_id"], event["run"]["attempt"]) == (event_id, 3)
    report(host, event, "succeeded", output={"receipt": 7})
    until(lambda: event_id in listed(up, "succeeded"), "it to succeed")

    def exported():
        since, ahead = iso(utc(hours=-1)), iso(utc(hours=1))
        lines = scheduler(up, "export", "--since", since, "--until", ahead).splitlines()
        return [json.loads(line) for line in lines]

    [run] = until(exported, "it in the history")
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["failed", "failed", "succeeded"]
    assert run["output"] == {"receipt": 7}
