"""`scheduler worker --handlers`: a host's handlers as a ready process."""

import os
import platform
import subprocess
import sys

import pytest
from api_support import start_api
from support import DEADLINE, Process, until, utc

MODULE = '''
from pydantic import BaseModel
from scheduler.client import GiveUp, Snooze, on_due

class Invoice(BaseModel):
    number: int
    copies: int = 2

@on_due("invoice", Invoice)
def invoice(due):
    """Remind of an invoice."""
    return {"reminded": due.payload.number}

@on_due("snoozing", description="Comes twice.")
def snoozing(due):
    if due.run.attempt == 1:
        raise Snooze(0)
    return "now"
'''
OTHER = """
from scheduler.client import GiveUp, on_due

@on_due("hopeless")
def hopeless(due):
    raise GiveUp("no such customer")

@on_due("failing")
def failing(due):
    raise RuntimeError("the printer is on fire")
"""


@pytest.fixture
def modules(tmp_path):
    (tmp_path / "shop_reminders.py").write_text(MODULE)
    (tmp_path / "shop_others.py").write_text(OTHER)
    return os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def listed(modules, *arguments):
    return subprocess.run([sys.executable, "-m", "scheduler", "worker", *arguments], env=modules, text=True,
                          capture_output=True, timeout=DEADLINE, check=False)


def test_worker_list_prints_the_handlers(modules):
    done = listed(modules, "--handlers", "shop_reminders", "--handlers", "shop_others", "--list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-5:-2] == [
        "invoice  shop_reminders.invoice", "    payload: Invoice(number: int, copies: int = …)",
        "    Remind of an invoice.",
    ]
    assert "hopeless  shop_others.hopeless\n" in done.stdout


@pytest.mark.parametrize(("arguments", "says"), [
    (["--handlers", "shop_nowhere"], "module not found"),
    (["--list"], "need --handlers"),
    (["--queue", "other"], "need --handlers"),
])
def test_invalid_handler_modules_are_reported(modules, arguments, says):
    done = listed(modules, *arguments)
    assert done.returncode == 78
    assert says in done.stderr


def test_handlers_run_and_their_results_are_reported(sidecar, host, modules):
    sidecar.up()
    worker = Process("worker", modules | sidecar.env, "--handlers", "shop_reminders", "--handlers", "shop_others")
    sidecar.processes.append(worker)
    worker.ready()
    policy = {"run": {"max_attempts": 2, "delay": 0}, "run_at": utc().isoformat()}
    jobs = {job_type: host.request(job_type=job_type, payload={"number": 7}, **policy)
            for job_type in ("invoice", "snoozing", "hopeless", "failing")}

    def ended():
        rows = sidecar.sql("SELECT job_type, status::text, attempt, error, output, worker FROM run_history")
        return {row["job_type"]: row for row in rows} if len(rows) == len(jobs) else None

    runs = until(ended, "every run ended")
    assert (runs["invoice"]["status"], runs["invoice"]["output"]) == ("succeeded", {"reminded": 7})
    assert (runs["snoozing"]["status"], runs["snoozing"]["attempt"]) == ("succeeded", 2)
    assert (runs["hopeless"]["status"], runs["hopeless"]["attempt"]) == ("dead", 1)
    assert runs["hopeless"]["error"] == "no such customer"
    assert (runs["failing"]["status"], runs["failing"]["attempt"]) == ("dead", 2)
    assert "RuntimeError: the printer is on fire" in runs["failing"]["error"]
    row = until(lambda: sidecar.sql("SELECT * FROM workers"), "the worker's row")[0]
    assert row["offers"] == ["handler.failing", "handler.hopeless", "handler.invoice", "handler.snoozing"]
    assert runs["invoice"]["worker"] == f"{row['host']}:{row['pid']}"


def test_a_worker_of_handlers_reports_what_they_do(sidecar, host, modules, tmp_path):
    (tmp_path / "shop_slow.py").write_text(SLOW)
    sidecar.up()
    worker = Process("worker", modules | sidecar.env | {"SCHEDULER_WORKER_POOLS": "eu"}, "--handlers", "shop_slow",
                     "--handlers", "shop_reminders").ready()
    sidecar.processes.append(worker)
    api = start_api(sidecar)
    now = {"run_at": utc().isoformat()}
    job = host.request(job_type="apart", run={"timeout": 3600}, **now)
    host.request(job_type="invoice", payload={"number": 7}, **now)  # untracked
    host.request(job_type="invoice", payload={"number": "seven"}, run={"max_attempts": 1}, **now)

    def reported():
        found = next((each for each in api.get("/replicas").json["items"] if each["role"] == "worker"), None)
        done = found and (found["in_flight"], found["succeeded"], found["failed"]) == (1, 1, 1)
        return found if done else None

    seen = until(reported, "the worker's report")
    [busy] = seen["busy"]
    [run] = api.get(f"/jobs/{job}/runs").json["items"]
    assert (busy["event_id"], busy["attempt"], busy["what"]) == (run["event_id"], 1, "apart")
    assert (seen["capacity"], seen["pools"]) == (4, [])
    assert f"Python {platform.python_version()}" in seen["platform"]


def test_a_worker_of_handlers_offers_its_commands_too(sidecar, host, modules, tmp_path):
    (tmp_path / "commands.toml").write_text('[greet]\nrun = ["/bin/echo", "hello"]\n')
    sidecar.up()
    env = modules | sidecar.env | {"SCHEDULER_COMMANDS_FILE": str(tmp_path / "commands.toml")}
    worker = Process("worker", env, "--handlers", "shop_reminders")
    sidecar.processes.append(worker)
    worker.ready()
    row = until(lambda: sidecar.sql("SELECT * FROM workers"), "the worker's row")[0]
    assert sorted(row["offers"]) == ["command.greet", "handler.invoice", "handler.snoozing"]
    now = {"run_at": utc().isoformat()}
    host.request(job_type="invoice", payload={"number": 7}, run={}, **now)
    host.request(job_type="greeting", target={"command": {"name": "greet"}}, **now)

    def ended():
        rows = sidecar.sql("SELECT job_type, output FROM run_history WHERE status = 'succeeded'")
        return {row["job_type"]: row["output"] for row in rows} if len(rows) == 2 else None

    outputs = until(ended, "both runs ended")
    assert outputs["invoice"] == {"reminded": 7}
    assert outputs["greeting"]["stdout"] == "hello\n"


def test_a_worker_with_a_queue_serves_only_that_queue(sidecar, host, modules):
    sidecar.up()
    host.channel.queue_declare("slow_work", durable=True)
    host.channel.queue_bind("slow_work", "schedule.events", "due.slow")
    worker = Process("worker", modules | sidecar.env, "--handlers", "shop_reminders", "--queue", "slow_work")
    sidecar.processes.append(worker)
    worker.ready()
    asked = {"job_type": "invoice", "payload": {"number": 7}, "run": {}, "run_at": utc().isoformat()}
    others, its_own = host.request(**asked), host.request(**asked, route="slow")
    [row] = until(lambda: sidecar.sql("SELECT job_id, status::text, output FROM run_history"), "its run ended")
    assert (str(row["job_id"]), row["status"], row["output"]) == (its_own, "succeeded", {"reminded": 7})
    assert [event["job_id"] for event in host.due()] == [others]


SLOW = """
import asyncio, time
from scheduler.client import on_due

@on_due("sleeping")
def sleeping(due):
    if due.run.attempt == 1:
        time.sleep(3600)
    return due.run.attempt

@on_due("awaiting")
async def awaiting(due):
    if due.run.attempt == 1:
        await asyncio.sleep(3600)
    return due.run.attempt

@on_due("apart", process=True)
def apart(due):
    if due.run.attempt == 1:
        time.sleep(3600)
    return due.run.attempt
"""


def test_handlers_beyond_the_grace_period_are_finished_by_another_worker(sidecar, host, modules, tmp_path):
    (tmp_path / "shop_slow.py").write_text(SLOW)
    sidecar.up()
    env = modules | sidecar.env | {"SCHEDULER_STOP_GRACE": "1"}
    first, jobs = Process("worker", env, "--handlers", "shop_slow").ready(), ("apart", "awaiting", "sleeping")
    for job_type in jobs:
        host.request(job_type=job_type, run={"max_attempts": 1, "timeout": 3600}, run_at=utc().isoformat())
    until(lambda: len(sidecar.sql("SELECT 1 FROM runs WHERE status = 'running'")) == 3, "three running handlers")
    assert first.stop() == 0
    second = Process("worker", env, "--handlers", "shop_slow").ready()
    sidecar.processes.append(second)
    history = "SELECT * FROM run_history ORDER BY job_type"
    rows = until(lambda: found if len(found := sidecar.sql(history)) == 3 else None, "every run's end")
    ends = [(row["job_type"], row["status"], row["output"]) for row in rows]
    assert ends == [(name, "succeeded", 2) for name in jobs]
    assert {row["attempts"][0]["outcome"] for row in rows} == {"snoozed"}


def test_types_list_what_workers_serve_and_what_jobs_use(sidecar, host, modules):
    sidecar.up()
    worker = Process("worker", modules | sidecar.env, "--handlers", "shop_reminders")
    sidecar.processes.append(worker)
    api = start_api(sidecar)
    for job_type, tenant in [("invoice", "acme"), ("invoice", "default"), ("of.acme", "acme")]:
        sidecar.stored(host.request(job_type=job_type, tenant=tenant, every="PT1H"))
    until(lambda: any(item["workers"] for item in api.get("/types").json["items"]), "the worker's heartbeat")
    invoice = {"job_type": "invoice", "description": "Remind of an invoice.", "defaults": {"copies": 2},
               "workers": 1, "jobs": 2}
    of_acme = {"job_type": "of.acme", "description": None, "parameters": None, "defaults": {}, "workers": 0,
               "jobs": 1}
    snoozing = {"job_type": "snoozing", "description": "Comes twice.", "parameters": None, "defaults": {},
                "workers": 1, "jobs": 0}
    [first, *others] = api.get("/types").json["items"]
    assert first.pop("parameters")["properties"]["number"] == {"title": "Number", "type": "integer"}
    assert [first, *others] == [invoice, of_acme, snoozing]
    rest = api.as_("viewer").get("/types", limit=2, after="invoice").json["items"]
    assert [item["job_type"] for item in rest] == ["of.acme", "snoozing"]
    default = api.as_("viewer", "default").get("/types", limit=1).json
    assert (default["items"][0]["jobs"], default["next"]) == (1, "invoice")
    assert [item["job_type"] for item in api.as_("viewer", "default").get("/types").json["items"]] == [
        "invoice", "snoozing"]
    worker.stop()
    until(lambda: not any(item["workers"] for item in api.get("/types").json["items"]), "the worker's leave")
