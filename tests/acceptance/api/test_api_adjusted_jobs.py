"""Jobs with a calendar, a window or jitter: stored, planned, emitted and reported by real processes."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from support import DEADLINE, iso, until, utc

from scheduler.domain.jobs.emission import event_id

ALL_DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def day(days):
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def received(host, queue, job_id):
    """Take the next message about a job."""
    while True:
        message = json.loads(host.get(queue)[2])
        if message["job_id"] == job_id:
            return message


def test_a_moved_occurrence_is_emitted_with_its_nominal_instant(shared_host, served):
    name, queue = f"c-{uuid4().hex[:8]}", shared_host.listen("schedule.events", "due")
    shared_host.publish("calendar", {"name": name, "closed": {day(-1): "yesterday"}})
    nominal = (utc(days=-1) - timedelta(seconds=5)).replace(microsecond=0)
    job_id = shared_host.request(run_at=iso(nominal), calendar=name, on_closed="next")
    event = received(shared_host, queue, job_id)
    assert (event["nominal_at"], event["moved"]) == (iso(nominal).replace("+00:00", "Z"), ["calendar"])
    assert event["event_id"] == event_id(job_id, nominal)
    assert event["due_at"] == iso(nominal + timedelta(days=1)).replace("+00:00", "Z")
    job = served.get(f"/jobs/{job_id}").json
    assert (job["calendar"], job["on_closed"], job["window"], job["jitter"]) == (name, "next", None, None)


def test_skipped_occurrences_are_reported_and_merged_ones_too(shared_host):
    name, queue = f"c-{uuid4().hex[:8]}", shared_host.listen("schedule.events", "missed")
    due = shared_host.listen("schedule.events", "due")
    shared_host.publish("calendar", {"name": name, "closed": {day(-2): "", day(-1): ""}})
    start = utc(days=-3, seconds=-5).replace(microsecond=0)
    fields = {"rrule": "FREQ=DAILY", "run_at": iso(start), "calendar": name}
    skipped = shared_host.request(**fields)
    missed = received(shared_host, queue, skipped)
    # The reports of folded and of skipped occurrences may come in any order.
    both = {missed["reason"]: missed}
    missed = received(shared_host, queue, skipped)
    both[missed["reason"]] = missed
    assert both["calendar"]["missed"] == [iso(start + timedelta(days=n)).replace("+00:00", "Z") for n in (1, 2)]
    assert both["latest"]["missed_count"] == 1
    assert received(shared_host, due, skipped)["missed"] == 1
    merged = shared_host.request(**fields, on_closed="next", on_missed="all")
    events = [received(shared_host, due, merged) for _ in range(2)]
    assert [event["missed"] for event in events] == [0, 2]
    report = received(shared_host, queue, merged)
    assert (report["reason"], report["missed_count"]) == ("merged", 2)


def test_a_late_occurrence_waits_while_its_window_is_shut(shared, shared_host, served):
    hour = datetime.now(UTC).hour
    opens, closes = (hour + 3) % 24, (hour + 5) % 24
    window = {"from": f"{opens:02}:00", "to": f"{closes:02}:00", "days": ALL_DAYS}
    job_id = shared_host.request(run_at=iso(utc(days=-3)), window=window)
    row = until(lambda: (found := shared.job(job_id)) and found["retry_at"] and found, "the job waits")
    assert row["retry_at"].hour == opens
    assert (row["status"], row["retries"], row["occurrence"]) == ("pending", 0, 0)
    job = served.get(f"/jobs/{job_id}").json
    assert job["window"] == {"from": window["from"], "to": window["to"]}
    trigger = served.post(f"/jobs/{job_id}/trigger")
    assert trigger.status == 200
    until(lambda: shared.job(job_id)["occurrence"] == 1, "the trigger disregards the window")
    until(lambda: shared.job(job_id)["retry_at"], "it waits again")


def test_unknown_calendars_are_rejected_until_they_are_stored(shared_host, served):
    name = f"c-{uuid4().hex[:8]}"
    rejected = served.post("/jobs", {"job_type": "a", "cron": "0 9 * * *", "calendar": name})
    assert (rejected.status, *rejected.errors) == (422, "calendar")
    replies = shared_host.channel.queue_declare("", exclusive=True).method.queue
    shared_host.publish("calendar", {"name": name, "weekend": ["SA"]}, reply_to=replies)
    shared_host.publish("request", {"id": str(uuid4()), "job_type": "a", "cron": "0 9 * * *", "calendar": name},
                        reply_to=replies)
    answers = [json.loads(shared_host.get(replies)[2])["status"] for _ in range(2)]
    assert answers == ["stored", "scheduled"]
    assert served.get(f"/calendars/{name}").json["jobs"] == 1
    assert served.ask("DELETE", f"/calendars/{name}").status == 409


def test_occurrences_and_previews_use_a_stored_calendar(shared, api):
    closed = {"2027-12-24": "Christmas Eve", "2027-12-25": "Christmas Day"}
    api.ask("PUT", "/calendars/de", {"closed": closed})
    fields = {"rrule": "FREQ=DAILY", "run_at": "2027-12-23T09:00:00Z", "calendar": "de", "on_closed": "next"}
    job = api.job(**fields)
    page = api.get(f"/jobs/{job['id']}/occurrences", count=2).json
    assert [item["utc"] for item in page["items"]] == ["2027-12-23T09:00:00Z", "2027-12-26T09:00:00Z"]
    assert [(each["nominal_at"], each["reason"]) for each in page["skipped"]] == [
        ("2027-12-24T09:00:00Z", "merged"), ("2027-12-25T09:00:00Z", "merged")]
    preview = api.post("/preview", fields | {"count": 2})
    assert preview.json["items"] == page["items"]
    assert (api.post("/preview", fields | {"calendar": "xx"}).status, api.post(
        "/preview", fields | {"tenant": "other"}).status) == (422, 422)
    command = [sys.executable, "-m", "scheduler", "preview", "--rrule", "FREQ=DAILY", "--run-at",
               "2027-12-23T09:00:00Z", "--calendar", "de", "--tenant", job["tenant"], "--count", "2"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_"))}
    printed = subprocess.run(command, env=clean | shared.env, capture_output=True, text=True, timeout=DEADLINE,
                             check=False)
    assert "Christmas Day" in printed.stdout, printed.stderr


def test_a_job_with_jitter_shows_it(api):
    job = api.job(run_at="2099-01-01T00:00:00Z", jitter=600)
    [item] = api.get(f"/jobs/{job['id']}/occurrences").json["items"]
    assert (item["moved"], item["nominal_at"]) == (["jitter"], "2099-01-01T00:00:00Z")
    assert job["next_run_at"].startswith("2099-01-01T00:0")
    assert datetime.fromisoformat(item["utc"]) == datetime.fromisoformat(job["next_run_at"])
    again = api.ask("PUT", f"/jobs/{job['id']}", {"job_type": "other", "run_at": job["run_at"], "jitter": 600})
    assert again.json["next_run_at"] == job["next_run_at"]
