"""A type checker accepts a host's code without casts, and finds its mistakes."""

import json
import subprocess
import sys
from uuid import uuid4

import pytest

from scheduler.client import Due, Handlers, TrackedDue
from scheduler.client.handlers import UnreadableEvent

HOST = """
from scheduler.client import Due, JobCommands, Outbox, ScheduleAccepted, SchedulerClient, TrackedDue
from scheduler.client import job_id, on_due
from scheduler.testing import InProcessClient, Sidecar

def remind(commands: JobCommands) -> None:
    commands.schedule(job_id("invoice", 42), "invoice.reminder", {"invoice": 42}, cron="@daily")

client = SchedulerClient("amqp://localhost")
for commands in (client, Outbox(object()), InProcessClient(Sidecar())):
    remind(commands)

accepted: ScheduleAccepted = client.cancel(job_id("invoice", 42), wait=True)
print(client.schedule(job_id("a"), "a", cron="@daily", wait=2.5).status)

@on_due("invoice.reminder", tracked=True)
def attempt(event: TrackedDue[dict[str, int]]) -> int:
    return event.run.attempt

@on_due("invoice.reminder")
async def maybe(event: Due[dict[str, int]]) -> None:
    print(event.run.attempt if event.run else 1)

number: int = attempt(TrackedDue[dict[str, int]].model_validate({}))
"""
MISTAKES = """
from scheduler.client import SchedulerClient, TrackedDue, job_id, on_due

SchedulerClient("").cancel(job_id("a")).status

@on_due("invoice.reminder")
def attempt(event: TrackedDue[dict[str, int]]) -> int:
    return event.run.attempt
"""


def check(folder, code):
    (folder / "host.py").write_text(code)
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary",
               f"--cache-dir={folder}/cache"]  # another mypy may be using that of the checkout
    # In a separate process: mypy raises the recursion limit and changes the garbage collection of its process.
    done = subprocess.run([sys.executable, "-m", "mypy", *options, str(folder / "host.py")], check=False,
                          capture_output=True, text=True)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if "error:" in line]


def test_a_host_needs_no_casts_and_its_mistakes_are_found(tmp_path):
    assert check(tmp_path, HOST) == []
    [unanswered, untracked] = check(tmp_path, MISTAKES)
    assert 'has no attribute "status"' in unanswered
    assert "TrackedDue" in untracked


def event(**fields):
    return json.dumps({
        "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "invoice.reminder", "payload": {},
        "due_at": "2026-12-01T08:00:00Z", "emitted_at": "2026-12-01T08:00:00Z", "occurrence": 1, "missed": 0,
        "next_run_at": None,
    } | fields).encode()


def test_a_handler_of_tracked_jobs_always_gets_a_run():
    handlers = Handlers()
    seen = []
    handlers.on_due("invoice.reminder", tracked=True)(seen.append)
    run = {"attempt": 2, "max_attempts": 3, "attempts_left": 1, "deadline": "2026-12-01T09:00:00Z"}
    handlers.dispatch(event(run=run))
    assert (type(seen[0]).__mro__[1], seen[0].run.attempt) == (TrackedDue, 2)
    with pytest.raises(UnreadableEvent, match="run"):
        handlers.dispatch(event())
    assert Due in TrackedDue.__mro__
