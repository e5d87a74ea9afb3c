"""ScheduleMissed is published after its event is confirmed, with the same id whenever it is repeated."""

import json
from datetime import datetime
from uuid import UUID

import pytest
from support import iso, until, utc

from scheduler.testing import Sidecar as Kit


@pytest.mark.parametrize("fields", [{}, {"run": {"max_attempts": 1}}])
def test_nothing_is_reported_as_missed_while_the_event_is_refused(sidecar, host, fields):
    missed = host.listen("schedule.events", "missed")
    sidecar.start("consumer").ready()
    producer = sidecar.start("producer").ready()
    host.channel.queue_unbind("mainapp_due", "schedule.events", "due")
    job = host.request(run_at=iso(utc(minutes=-20, seconds=-30)), every=60, **fields)
    until(lambda: (sidecar.job(job) or {}).get("retries", 0) >= 3, "the event refused three times")
    assert host.drain(missed) == []
    assert producer.metric("scheduler_jobs_missed_total") == 0

    host.channel.queue_bind("mainapp_due", "schedule.events", "due")
    [event] = host.due()
    _, properties, body = host.get(missed)
    told = json.loads(body)
    assert told["job_id"] == job
    assert told["missed_count"] == event["missed"] >= 20
    assert len(told["missed"]) == told["missed_count"]
    assert max(map(datetime.fromisoformat, told["missed"])) < datetime.fromisoformat(event["due_at"])
    assert properties.message_id == told["id"] == str(UUID(told["id"]))
    until(lambda: producer.metric("scheduler_jobs_missed_total") == told["missed_count"], "the count")
    assert host.drain(missed) == []


def test_a_missed_message_without_an_event_has_an_id_too(sidecar, host):
    missed = host.listen("schedule.events", "missed")
    sidecar.up()
    host.request(run_at=iso(utc(hours=-3, minutes=-30)), every=3600, on_missed="skip")
    _, properties, body = host.get(missed)
    assert properties.message_id == json.loads(body)["id"]
    assert json.loads(body)["missed_count"] == 4


def test_the_id_is_a_function_of_the_job_the_occurrences_and_the_reason():
    def reported(**fields):
        kit = Kit(utc().replace(microsecond=0))
        kit.request(id="7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", job_type="a", every=60,
                    run_at=iso(kit.now.replace(year=2030)), **fields)
        with kit.down():
            kit.advance_to(kit.now.replace(year=2030, minute=kit.now.minute))
            kit.advance(minutes=5, seconds=10)
        return kit.missed()[0]

    first, again, other = reported(), reported(), reported(on_missed="skip")
    assert first.id == again.id != other.id
    assert first.missed == again.missed
