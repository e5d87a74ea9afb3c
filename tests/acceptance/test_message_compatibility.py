"""Messages from hosts of an earlier release are still accepted, and events still match their schemas."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from jsonschema import Draft202012Validator
from support import iso, utc

RELEASES = Path(__file__).parents[1] / "releases"
KEYS = {
    "ScheduleRequest": "request", "ScheduleCancel": "cancel", "SchedulePause": "pause", "ScheduleResume": "resume",
    "ScheduleTrigger": "trigger", "ScheduleResult": "result",
}

# Fields that the contract has since added to our messages.
ADDED = {"ScheduleMissed": {"id"}}


class Release:
    """The messages of an earlier release."""

    def __init__(self, commit):
        self.schemas = {path.stem: json.loads(path.read_text()) for path in (RELEASES / commit).glob("*.json")}

    def commands(self):
        """Yield the routing key and the body of every example of a message to the sidecar."""
        for name, key in KEYS.items():
            for example in self.schemas.get(name, {}).get("examples", ()):
                yield key, example

    def fits(self, kind, body):
        schema = self.schemas[kind]
        added = ADDED.get(kind, set())
        known = {name: value for name, value in json.loads(body).items() if name not in added}
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(known)


def answered(host, key, body):
    """Send a command and return the type and the body of its reply."""
    name = host.channel.queue_declare("", exclusive=True).method.queue
    host.publish(key, body, reply_to=name, correlation_id="c")
    _, properties, answer = host.get(name)
    return properties.type, answer


@pytest.mark.parametrize("commit", sorted(path.name for path in RELEASES.iterdir() if path.is_dir()))
def test_hosts_of_earlier_releases_still_work(sidecar, host, commit):
    release = Release(commit)
    sidecar.up(consumers=1, producers=1)

    for key, example in release.commands():
        # Examples are dated like documentation; a command from the future is rejected since 0.3.
        new = {"id": str(uuid4()), "issued_at": iso(utc())}
        kind, answer = answered(host, key, example | {name: new[name] for name in new if name in example})
        assert kind in ("ScheduleAccepted", "ScheduleRecorded"), (key, example, answer)
        release.fits(kind, answer)
    kind, answer = answered(host, "request", {"id": str(uuid4()), "job_type": "x", "rule": "FREQ=DAILY"})
    assert kind == "ScheduleRejected"
    release.fits(kind, answer)

    host.drain("mainapp_due")  # for examples whose day is due
    missed, rejected = (host.listen("schedule.events", key) for key in ("missed", "rejected"))
    host.publish("request", b"not json")
    release.fits("ScheduleRejected", host.get(rejected)[2])
    jobs = {
        host.request(job_type="old.once", run_at=iso(utc()), payload={"n": 1}),
        host.request(job_type="old.cron", cron="* * * * *", run_at=iso(utc(minutes=-5)), timezone="Europe/Berlin"),
    }
    host.request(job_type="old.skip", every=3600, run_at=iso(utc(minutes=-90)), on_missed="skip")
    while jobs:
        _, properties, body = host.get("mainapp_due")
        release.fits("ScheduleDue", body)
        assert properties.type == "ScheduleDue"
        jobs.discard(json.loads(body)["job_id"])
    release.fits("ScheduleMissed", host.get(missed)[2])

    if "ScheduleResult" in release.schemas:
        follow_a_run(release, host)


def follow_a_run(release, host):
    """Let a run die twice; the example of a retry names an unknown event."""
    finished = host.listen("schedule.events", "finished")
    tracked = host.request(job_type="old.tracked", run_at=iso(utc()), run={"max_attempts": 2})
    for attempt, report in ((1, {"status": "failed", "retry": False}), (2, {"status": "succeeded"})):
        event = {}
        while event.get("job_id") != tracked:  # others fall due as well
            body = host.get("mainapp_due")[2]
            release.fits("ScheduleDue", body)
            event = json.loads(body)
        assert event["run"]["attempt"] == attempt
        host.publish("result", {"event_id": event["event_id"], "attempt": attempt} | report)
        release.fits("ScheduleFinished", host.get(finished)[2])
        if attempt == 1:
            [example] = release.schemas["ScheduleRetry"]["examples"]
            new = {"event_id": event["event_id"], "issued_at": iso(utc())}
            kind, answer = answered(host, "retry", example | new)
            release.fits(kind, answer)
            assert kind != "ScheduleRejected"
