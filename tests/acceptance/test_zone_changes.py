"""Jobs keep their wall times when the rules of their zone change."""

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from support import Host, Sidecar, iso, until, utc
from zone_support import zone_directory, zone_file

ZONE = "America/Vancouver"
CHANGED = utc(hours=-3)  # when the clocks of the newer data change
NEWER = "2099b"


@pytest.fixture
def older(tmp_path: Path) -> dict[str, str]:
    return {"SCHEDULER_ZONEINFO_DIR": zone_directory(tmp_path / "older", "2099a", {ZONE: zone_file(-8)})}


@pytest.fixture
def newer(tmp_path: Path) -> dict[str, str]:
    """The clocks went an hour ahead: each wall time comes an hour sooner."""
    changed = zone_file(-8, (CHANGED, -7))
    return {"SCHEDULER_ZONEINFO_DIR": zone_directory(tmp_path / "newer", NEWER, {ZONE: changed})}


def local(moment: datetime) -> str:
    """Return the wall time by the older data."""
    return (moment - timedelta(hours=8)).strftime("%Y-%m-%dT%H:%M:%S")


def instant(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def daily(host: Host, moment: datetime, **fields: object) -> str:
    wall = moment - timedelta(hours=8)
    return host.request(cron=f"{wall.minute} {wall.hour} * * *", run_at=local(moment), timezone=ZONE, **fields)


def moved(sidecar: Sidecar, job_id: str, expected: datetime) -> None:
    until(lambda: sidecar.stored(job_id)["next_run_at"] == expected, f"job {job_id} planned for {expected}")


def test_a_newer_producer_replans_jobs_and_announces_it(sidecar: Sidecar, host: Host, older, newer) -> None:
    sidecar.up(producers=0, **older)
    at = utc(days=2).replace(second=0, microsecond=0)
    jobs = {
        host.request(run_at=local(at), timezone=ZONE): at - timedelta(hours=1),
        daily(host, at, tenant="acme"): at - timedelta(hours=1),
        host.request(rrule="FREQ=DAILY;COUNT=3", run_at=local(at), timezone=ZONE): at - timedelta(hours=1),
        host.request(run_at=at.isoformat(), timezone=ZONE): at,
        host.request(every="P1D", run_at=local(at), timezone=ZONE): at,
        host.request(cron="0 9 * * *"): None,
        host.request(run_at=local(at), timezone="Asia/Tokyo"): None,
    }
    before = {job_id: sidecar.stored(job_id)["next_run_at"] for job_id in jobs}
    replanned = host.listen("schedule.events", "replanned")
    paused = daily(host, at)
    host.publish("pause", {"id": paused})
    sidecar.stored(paused, "paused")

    sidecar.start("producer", **newer).ready()

    moved(sidecar, paused, at - timedelta(hours=1))
    for job_id, expected in jobs.items():
        moved(sidecar, job_id, expected or before[job_id])
    events = [host.get(replanned) for _ in range(4)]
    assert host.drain(replanned) == []
    bodies = {(body := json.loads(raw))["job_id"]: body for _, _, raw in events}
    assert set(bodies) == {*list(jobs)[:3], paused}
    tenant_job = list(jobs)[1]
    assert bodies[tenant_job] == {
        "job_id": tenant_job, "job_type": "test.job", "tenant": "acme",
        "old_next_run_at": instant(at),
        "next_run_at": instant(at - timedelta(hours=1)),
        "reason": "zone", "name": ZONE, "version": NEWER,
    }
    assert "tenant" not in bodies[paused]
    assert {properties.type for _, properties, _ in events} == {"ScheduleReplanned"}
    rows = sidecar.sql("SELECT zone_version FROM jobs WHERE id = ANY (%s::uuid[])", [*bodies])
    assert {row["zone_version"] for row in rows} == {NEWER}


def test_jobs_move_whose_window_follows_the_zone(sidecar: Sidecar, host: Host, older, newer) -> None:
    sidecar.up(producers=0, **older)
    opens = utc(days=2).replace(minute=0, second=0, microsecond=0)
    closes = local(opens + timedelta(hours=1))[11:16]
    fields = {"timezone": ZONE, "run_at": iso(opens - timedelta(hours=12)),
              "window": {"from": local(opens)[11:16], "to": closes}}
    closed = local(opens - timedelta(hours=12))[:10]
    host.publish("calendar", {"name": "once", "tenant": "*", "closed": {closed: ""}})
    jobs = {host.request(**fields): opens, host.request(**fields, every="P1D"): opens,
            host.request(**fields, calendar="once", on_closed="next"): opens + timedelta(days=1)}
    every = host.request(every="P1D", run_at=iso(opens), timezone=ZONE, jitter=0)
    for job_id, at in jobs.items():
        moved(sidecar, job_id, at)
    sidecar.stored(every)
    expected = {job_id: at - timedelta(hours=1) for job_id, at in jobs.items()}
    plan = json.loads(zones(sidecar, newer, "--json", "--plan"))["items"]
    assert {item["job_id"]: item["next_run_at"] for item in plan} == {
        job_id: instant(at) for job_id, at in expected.items()}
    replanned = host.listen("schedule.events", "replanned")
    sidecar.start("producer", **newer).ready()
    for job_id, at in expected.items():
        moved(sidecar, job_id, at)
    events = [json.loads(host.get(replanned)[2]) for _ in jobs]
    assert {(event["job_id"], event["reason"]) for event in events} == {(job_id, "zone") for job_id in jobs}
    assert sidecar.stored(every)["next_run_at"] == opens


def test_older_replicas_leave_jobs_of_newer_data_alone(sidecar: Sidecar, host: Host, older, newer) -> None:
    consumer = sidecar.start("consumer", **newer).ready()
    sidecar.start("producer", **older).ready()
    # Due now by the newer data, and an hour ago by the older: its clocks still differ.
    left = host.request(run_at=local(utc(hours=1)), timezone=ZONE)
    sidecar.stored(left)
    others = [host.request(run_at=iso(utc())), host.request(run_at="2026-01-01T09:00:00", timezone="Asia/Tokyo")]
    assert {event["job_id"] for event in host.due(2)} == {*others}
    until(lambda: any("left to replicas" in line["event"] for line in sidecar.processes[-1].lines), "a warning")
    marker = host.request(run_at=iso(utc(seconds=1)))
    assert [event["job_id"] for event in host.due()] == [marker]
    assert sidecar.stored(left)["status"] == "pending"
    assert consumer.stop() == 0

    sidecar.start("producer", **newer).ready()
    assert [event["job_id"] for event in host.due()] == [left]
    sidecar.stored(left, "done")


def test_a_zone_change_emits_each_wall_time_once(sidecar: Sidecar, host: Host, older, newer) -> None:
    sidecar.up(producers=1, **older)
    old_producer = sidecar.processes[-1]
    start = utc(seconds=8).replace(microsecond=0)
    due = {}
    for number in range(800):
        at = start + timedelta(seconds=number % 20)
        due[host.request(rrule="FREQ=DAILY", run_at=local(at), timezone=ZONE)] = at
    events = host.due(150)
    sidecar.start("producer", **newer).ready()
    old_producer.kill()
    while len({event["job_id"] for event in events}) < len(due):
        events += host.due()

    emitted = {(event["job_id"], event["event_id"]) for event in events}
    assert len(emitted) == len(due)
    # By the newer data, the same wall time comes an hour sooner on the next day.
    following = {job_id: at + timedelta(hours=23) for job_id, at in due.items()}
    until(lambda: {str(row["id"]): row["next_run_at"] for row in sidecar.sql("SELECT id, next_run_at FROM jobs")}
          == following, "all jobs planned by the newer data")
    again = [json.loads(body) for body in host.drain("mainapp_due")]
    assert {(event["job_id"], event["event_id"]) for event in again} <= emitted


def test_a_request_that_is_sent_again_changes_nothing(sidecar: Sidecar, host: Host, older, newer) -> None:
    consumer = sidecar.start("consumer", **older).ready()
    at = utc(days=2).replace(second=0, microsecond=0)
    body = {"id": str(uuid4()), "job_type": "test.job", "run_at": local(at), "timezone": ZONE}
    host.publish("request", body)
    sidecar.stored(body["id"])
    sidecar.start("producer", **newer).ready()
    moved(sidecar, body["id"], at - timedelta(hours=1))
    host.publish("request", body | {"name": "by older data"})
    until(lambda: sidecar.stored(body["id"])["name"] == "by older data", "the request stored")
    assert sidecar.stored(body["id"])["next_run_at"] == at - timedelta(hours=1)
    assert consumer.stop() == 0
    sidecar.start("consumer", **newer).ready()
    host.publish("request", body | {"name": "by newer data"})
    until(lambda: sidecar.stored(body["id"])["name"] == "by newer data", "the request stored")
    assert sidecar.stored(body["id"])["next_run_at"] == at - timedelta(hours=1)


def zones(sidecar: Sidecar, data: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "scheduler", "zones", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=sidecar.env | data, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_plan_shows_each_change_and_changes_nothing(sidecar: Sidecar, host: Host, older, newer) -> None:
    sidecar.up(producers=0, **older)
    at = utc(days=2).replace(microsecond=0)
    job_id = host.request(run_at=local(at), timezone=ZONE, tenant="acme")
    before = sidecar.stored(job_id)
    sidecar.stored(host.request(run_at=local(at), timezone="Asia/Tokyo"))

    assert json.loads(zones(sidecar, older, "--json")) == {
        "version": "2099a", "source": older["SCHEDULER_ZONEINFO_DIR"], "waiting": 0}
    assert json.loads(zones(sidecar, newer, "--json", "--plan")) == {
        "version": NEWER, "source": newer["SCHEDULER_ZONEINFO_DIR"], "waiting": 1,
        "items": [{"job_id": job_id, "job_type": "test.job", "tenant": "acme", "timezone": ZONE,
                   "old_next_run_at": instant(at), "next_run_at": instant(at - timedelta(hours=1))}],
    }
    shown = zones(sidecar, newer, "--plan")
    assert "waiting  1\n" in shown
    assert job_id in shown
    assert sidecar.stored(job_id) == before

    sidecar.start("producer", **newer).ready()
    moved(sidecar, job_id, at - timedelta(hours=1))
    assert json.loads(zones(sidecar, newer, "--json"))["waiting"] == 0
    assert "No next run will move." in zones(sidecar, newer, "--plan")


@pytest.mark.parametrize(("files", "problem"), [
    ({}, "states no version"), ({"+VERSION": "soon"}, "the version"), ({"+VERSION": "2099a"}, "no compiled"),
])
def test_a_directory_without_zone_data_is_a_wrong_setting(tmp_path: Path, files, problem) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command, env = [sys.executable, "-m", "scheduler", "consumer"], {"SCHEDULER_ZONEINFO_DIR": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ended.returncode == 78
    assert problem in ended.stderr


