"""A changed calendar plans the jobs that use it again, announces it, and emits nothing twice."""

import json
from datetime import UTC, datetime, timedelta

from support import iso, until, utc


def day(days):
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def test_jobs_are_planned_again_and_announced(sidecar, host):
    sidecar.up(producers=2)
    queue = host.listen("schedule.events", "replanned")
    host.publish("calendar", {"name": "de", "tenant": "*"})
    host.publish("calendar", {"name": "de", "tenant": "own"})
    start = utc(days=3).replace(microsecond=0)
    fields = {"rrule": "FREQ=DAILY", "run_at": iso(start), "calendar": "de", "on_closed": "next"}
    jobs = [host.request(**fields) for _ in range(250)]
    paused = host.request(**fields)
    host.publish("pause", {"id": paused})
    own = host.request(**fields, tenant="own")
    without = host.request(rrule="FREQ=DAILY", run_at=iso(start))
    for job_id in (*jobs, own, without):
        sidecar.stored(job_id)
    sidecar.stored(paused, "paused")
    host.publish("calendar", {"name": "de", "tenant": "*", "closed": {day(3): "closed"}})
    moved = start + timedelta(days=1)

    def planned():
        rows = sidecar.sql("SELECT count(*) AS n FROM jobs WHERE next_run_at = %s", moved)
        return rows[0]["n"] == len(jobs) + 1

    until(planned, "all jobs that use it planned again")
    assert {sidecar.job(job_id)["next_run_at"] for job_id in (own, without)} == {start}
    events = [json.loads(host.get(queue)[2]) for _ in range(len(jobs) + 1)]
    assert {event["job_id"] for event in events} == {*jobs, paused}
    expected = {"reason": "calendar", "name": "de", "version": 2}
    assert all({name: event[name] for name in expected} == expected for event in events)
    assert {event["old_next_run_at"] for event in events} == {iso(start)[:19] + ".000000Z"}
    until(lambda: not sidecar.sql("SELECT 1 FROM calendars WHERE changed"), "the change is settled")


def test_replanning_emits_nothing_twice_and_applies_on_missed(sidecar, host):
    sidecar.up()
    queue = host.listen("schedule.events", "replanned")
    host.publish("calendar", {"name": "de"})
    start = utc(days=-1, seconds=-30).replace(microsecond=0)
    fields = {"rrule": "FREQ=DAILY", "calendar": "de", "on_closed": "previous"}
    emitted = host.request(**fields, run_at=iso(start))
    [event] = host.due()
    assert (event["job_id"], event["missed"]) == (emitted, 1)
    # Tomorrow's occurrence is moved to today's instant, which was emitted.
    waiting = host.request(rrule="FREQ=WEEKLY", calendar="de", on_closed="previous",
                           run_at=iso(start + timedelta(days=2)))
    sidecar.stored(waiting)
    host.publish("calendar", {"name": "de", "closed": {day(1): "closed"}})
    [late] = host.due()
    assert (late["job_id"], late["moved"]) == (waiting, ["calendar"])
    events = [json.loads(host.get(queue)[2]) for _ in range(2)]
    assert {event["job_id"] for event in events} == {emitted, waiting}
    assert sidecar.job(emitted)["occurrence"] == 1
    assert host.drain("mainapp_due") == []


def test_what_was_emitted_or_reported_is_final(sidecar, host):
    sidecar.up()
    missed = host.listen("schedule.events", "missed")
    start = utc(seconds=4).replace(microsecond=0)
    today = start.date().isoformat()
    host.publish("calendar", {"name": "shut", "closed": {today: "closed"}})
    host.publish("calendar", {"name": "open"})
    fields = {"rrule": "FREQ=DAILY", "run_at": iso(start)}
    skipped = host.request(**fields, calendar="shut")
    emitted = {host.request(**fields, calendar="open", on_closed=policy) for policy in ("skip", "next")}
    assert {event["job_id"] for event in host.due(len(emitted))} == emitted
    report = json.loads(host.get(missed)[2])
    assert (report["job_id"], report["reason"], len(report["missed"])) == (skipped, "calendar", 1)

    host.publish("calendar", {"name": "shut"})
    host.publish("calendar", {"name": "open", "closed": {today: "closed"}})
    settled = "SELECT name FROM calendars WHERE version = 2 AND NOT changed"
    until(lambda: len(sidecar.sql(settled)) == 2, "both settled", within=120)
    for job_id in (skipped, *emitted):
        assert sidecar.stored(job_id)["next_run_at"] == start + timedelta(days=1)
    assert (host.drain("mainapp_due"), host.drain(missed)) == ([], [])
    until(lambda: not sidecar.sql("SELECT name FROM former_calendars"), "the former contents deleted")
