"""Handlers in child processes: the same results, and they can be terminated; and how a Runner itself ends."""

import importlib
import os
import signal
import subprocess
import sys

import psutil
import pytest
from runner_support import Running, due, tracked
from support import DEADLINE, until

MODULE = """
import asyncio, os, pathlib, signal, subprocess, sys, time
from pydantic import BaseModel
from scheduler.client import GiveUp, Handlers, Snooze

class Task(BaseModel):
    do: str
    file: str = ""

handlers = Handlers()

def note(task, text):
    with open(task.file, "a") as file:
        file.write(f"{text}\\n")

def work(event):
    task = event.payload
    match task.do:
        case "return": return {"pid": os.getpid(), "attempt": event.run and event.run.attempt}
        case "raise": raise RuntimeError("mail server unreachable")
        case "snooze": raise Snooze(7)
        case "give up": raise GiveUp("no such invoice")
        case "not json": return {1j}
        case "large": return "x" * 300_000
        case "exit": os._exit(3)
        case "hang":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            note(task, f"{os.getpid()} {child.pid}")
            try:
                time.sleep(3600)
            finally:
                note(task, "cleaned up")
        case "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note(task, f"{os.getpid()} {os.getpid()}")
            time.sleep(3600)

@handlers.on_due("task", Task, process=True)
def run(event):
    if event.run is not None and event.run.attempt > 1:
        return "later"
    return work(event)

@handlers.on_due("limited", Task, process=True, timeout=0.5)
def limited(event):
    return work(event)

@handlers.on_due("async", Task, process=True)
async def run_async(event):
    await asyncio.sleep(0)
    return work(event)
"""


@pytest.fixture
def running(amqp_url, host, tmp_path, monkeypatch):
    (tmp_path / "process_tasks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("process_tasks")
    made = Running(amqp_url, host)
    made.handlers = module.handlers
    made.file = tmp_path / "notes"
    made.file.touch()
    yield made.start()
    made.stop()
    del sys.modules["process_tasks"]


def lines(running, count):
    read = lambda: running.file.read_text().splitlines()  # noqa: E731 - read until it is long enough
    return until(lambda: found if len(found := read()) >= count else None, "notes")


def gone(pids):
    def ended(pid):
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(lambda: all(ended(pid) for pid in pids), f"the end of {pids}")


@pytest.mark.parametrize("job_type", ["task", "async"])
def test_a_handler_in_a_process_returns_its_value(running, job_type):
    running.emit(tracked(job_type=job_type, do="return"))
    output = running.results("succeeded")["output"]
    assert output["attempt"] == 1
    assert output["pid"] != os.getpid()


@pytest.mark.parametrize(("do", "status", "says"), [
    ("raise", "failed", "RuntimeError: mail server unreachable"), ("give up", "failed", "no such invoice"),
    ("not json", "failed", "of type set that is not JSON"), ("exit", "failed", "ended with exit code 3"),
    ("snooze", "snoozed", None), ("large", "succeeded", None),
])
def test_what_a_handler_in_a_process_does_is_reported(running, do, status, says):
    running.emit(tracked(job_type="task", do=do))
    said = running.results("failed", "snoozed", "succeeded")
    assert said["status"] == status
    assert says is None or says in said["error"]
    assert said.get("retry", True) == (do not in ("give up", "not json"))
    assert said.get("retry_in") == (7 if do == "snooze" else None)


def test_a_failed_event_that_is_not_tracked_goes_to_the_dead_queue_with_its_error(running):
    running.emit(due("task", do="raise"))
    headers = running.host.get("mainapp_due_dead")[1].headers
    assert headers["x-error"] == "HandlerFailed: RuntimeError: mail server unreachable"
    assert "in work" in headers["x-traceback"]


def test_a_process_is_terminated_after_its_timeout(running):
    running.emit(tracked(job_type="limited", do="hang", file=str(running.file)))
    said = running.results("failed")
    assert "longer than its timeout of 0.5 s" in said["error"]
    assert said["retry"]


def test_a_process_is_terminated_before_the_next_attempt_starts_with_those_that_it_started(running):
    sent = running.emit(tracked(job_type="task", do="hang", file=str(running.file)))
    pids = [int(pid) for pid in lines(running, 1)[0].split()]
    running.emit(tracked(sent, 2))
    said = running.results("succeeded", "failed")
    assert (said["attempt"], said.get("output")) == (2, "later")
    gone(pids)
    assert lines(running, 2)[1] == "cleaned up"


def test_a_process_that_ignores_sigterm_is_killed(running, monkeypatch):
    monkeypatch.setattr("scheduler.client.process_handler.KILL_SECONDS", 0.1)
    sent = running.emit(tracked(job_type="task", do="ignore", file=str(running.file)))
    pids = [int(pid) for pid in lines(running, 1)[0].split()]
    running.emit(tracked(sent, 2))
    assert running.results("succeeded", "failed")["attempt"] == 2
    gone(pids)


SCRIPT = """
import sys, time
from scheduler.client import Runner, on_due

@on_due("task", process=True)
def task(event):
    if event.payload["do"] == "return":
        return event.payload
    print("begun", flush=True)
    time.sleep(3600)

@on_due("slow")
def slow(event):
    print("begun", flush=True)
    time.sleep(3600)

if __name__ == "__main__":
    runner = Runner(sys.argv[1], grace=float(sys.argv[2]), delays=(3600.0,))
    runner.run_until_signal()
"""


@pytest.fixture
def script(amqp_url, host, tmp_path):
    """A function that starts a Runner as a program; and `emit`, for events."""
    (tmp_path / "shop.py").write_text(SCRIPT)
    started = []

    def start(grace):
        process = subprocess.Popen(
            [sys.executable, str(tmp_path / "shop.py"), amqp_url, str(grace)], stdout=subprocess.PIPE, text=True,
        )
        started.append(process)
        return process

    start.events = Running(amqp_url, host)
    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_handler_of_the_main_program_runs_in_a_process(script):
    script(30)
    script.events.emit(tracked(job_type="task", do="return"))
    assert script.events.results("succeeded", "failed").get("output") == {"do": "return"}


def test_a_child_process_ends_with_its_runner(script):
    runner = script(30)
    script.events.emit(tracked(job_type="task", do="hang"))
    assert runner.stdout.readline() == "begun\n"
    children = [child.pid for child in psutil.Process(runner.pid).children(recursive=True)]
    assert children
    runner.kill()
    gone(children)


@pytest.mark.parametrize("job_type", ["slow", "task"])
def test_a_second_signal_ends_a_runner_at_once(script, job_type):
    runner = script(3600)
    script.events.emit(tracked(job_type=job_type, do="hang"))
    assert runner.stdout.readline() == "begun\n"
    script.events.results("running")
    runner.send_signal(signal.SIGTERM)
    until(lambda: script.events.consumers("mainapp_due") == 0, "no more events taken")
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(DEADLINE) == 128 + signal.SIGTERM


@pytest.mark.parametrize("job_type", ["slow", "task"])
def test_an_event_whose_handler_outlasts_the_grace_period_is_delivered_again(script, job_type):
    runner = script(0.2)
    script.events.emit(due(job_type, do="hang"))
    assert runner.stdout.readline() == "begun\n"
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(DEADLINE) == 0
    assert script.events.host.get("mainapp_due")[1].headers is None
    assert script.events.depth("mainapp_due_retry_3600000ms") == 0


@pytest.mark.parametrize("job_type", ["slow", "task"])
def test_a_handler_that_outlasts_the_grace_period_is_left_to_another_runner(script, job_type):
    runner = script(0.2)
    sent = script.events.emit(tracked(job_type=job_type, do="hang"))
    assert runner.stdout.readline() == "begun\n"
    script.events.results("running")
    runner.send_signal(signal.SIGTERM)
    said = script.events.results("snoozed")
    assert (said["event_id"], said["retry_in"]) == (sent["event_id"], 0)
    assert runner.wait(DEADLINE) == 0
