"""`scheduler run show` and `list` describe a run's state and its next step."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.cli.show.run import explain, rows
from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import RunPolicy
from scheduler.domain.runs.run import AttemptOutcome, FinishedAttempt, Occurrence, Origin, Run, RunStatus
from scheduler.postgres.runs.report import RunReport
from scheduler.views.base import as_json
from scheduler.views.runs import run_json, run_view

DUE = datetime(2026, 12, 1, 8, tzinfo=UTC)
EVENT = "0b6f9c1e-6f0c-4b50-9b0e-0d8a3f3f2a11"
JOB = "5d0a4a57-6a3c-4d9b-8f3d-3d8f5b1f3c22"
OCCURRENCE = Occurrence(JOB, "invoice.reminder", DUE, Origin.SCHEDULE, RunPolicy(), "{}")


def after(seconds):
    return DUE + timedelta(seconds=seconds)


def at(seconds):
    return rfc3339(after(seconds))


def attempt(number, outcome="failed", **changed):
    fields = {"worker": "w1", "started_at": after(10 * number), "finished_at": after(10 * number + 2.5),
            "error": "no", "output": None}
    return FinishedAttempt(number, AttemptOutcome(outcome), **fields | changed)


def run(status, **changed):
    fields = {"attempt": 1, "counted": 1, "emitted_at": after(0.01), "occurrence": OCCURRENCE}
    return Run(EVENT, RunStatus(status), **fields | changed)


def parts(status, *, now=60, producers=1, announced=True, **changed):
    text = "\n".join(explain(RunReport(run(status, **changed), announced, producers, after(now))))
    return [part.splitlines() for part in text.split("\n\n")]


def standing(status, **changed):
    return parts(status, **changed)[1]


RETRY_HINT = "`scheduler run retry` retries it now."


@pytest.mark.parametrize(("status", "changed", "lines"), [
    ("delivered", {"deadline": after(3600)},
     [f"Attempt 1 was emitted at {at(0.01)}; no worker has reported its start.",
      f"A worker must start it by {at(3600)}, in 59 min.",
      "If it fails, it is retried up to 2 more times."]),
    ("delivered", {"deadline": after(50), "attempt": 3, "counted": 3, "producers": 0},
     [f"Attempt 3 was emitted at {at(0.01)}; no worker has reported its start.",
      f"Its deadline passed at {at(50)}, 10.0 s ago; a producer will end the attempt.",
      "This is the last attempt: if it fails, the run is dead.",
      "No producer is running: the run does not change until one starts."]),
    ("running", {"deadline": after(300), "alive_until": after(90), "started_at": after(1), "worker": "w1",
                 "progress": 0.5, "attempt": 2, "counted": 2},
     [f"w1 has been running attempt 2 since {at(1)}; 50% is done.",
      f"A heartbeat must arrive by {at(90)}, in 30.0 s.",
      f"Its result must arrive by {at(300)}, in 4 min.",
      "If it fails, it is retried once more."]),
    ("running", {"deadline": after(300), "started_at": after(1)},
     [f"An unnamed worker has been running attempt 1 since {at(1)}.",
      f"Its result must arrive by {at(300)}, in 4 min.",
      "If it fails, it is retried up to 2 more times."]),
    ("waiting", {"attempts": (attempt(1),), "retry_at": after(72.5)},
     [f"Attempt 1 failed at {at(12.5)}: no.", f"Attempt 2 is due at {at(72.5)}, in 12.5 s."]),
    ("waiting", {"attempts": (attempt(1, "snoozed", error=None),), "retry_at": after(50), "counted": 0},
     [f"Attempt 1 was snoozed by w1 at {at(12.5)}.",
      f"Attempt 2 has been due since {at(50)}, for 10.0 s; a producer will emit it."]),
    ("waiting", {"attempts": (attempt(1, "lost"),), "retry_at": after(61), "counted": 0, "retried_at": after(55)},
     [f"Attempt 1 was lost at {at(12.5)}: no.",
      f"A retry issued at {at(55)} reset its attempt count.",
      f"Attempt 2 is due at {at(61)}, in 1.000 s."]),
    ("succeeded", {"attempts": (attempt(1), attempt(2, "succeeded", worker="w2")), "finished_at": after(30)},
     [f"Succeeded at {at(30)} with attempt 2, by w2."]),
    ("succeeded",
     {"attempts": (attempt(1, "succeeded", worker=None),), "finished_at": after(30), "announced": False},
     [f"Succeeded at {at(30)} with attempt 1, by an unnamed worker.",
      "ScheduleFinished is not published yet; a producer will publish it."]),
    ("dead", {"attempts": (attempt(3, "timed_out"),), "finished_at": after(33), "attempt": 3, "counted": 3},
     [f"Attempt 3 timed out at {at(32.5)}: no.",
      f"Dead since {at(33)}: all 3 attempts are exhausted.",
      f"The event is in scheduler_dead. {RETRY_HINT}"]),
    ("dead", {"attempts": (attempt(1),), "finished_at": after(33), "producers": 0},
     [f"Attempt 1 failed at {at(12.5)}: no.",
      f"Dead since {at(33)}: its worker reported that a retry would not help.",
      f"The event is in scheduler_dead. {RETRY_HINT}"]),
    ("cancelled", {"finished_at": after(33)},
     [f"Cancelled at {at(33)} with its job; there are no further attempts. {RETRY_HINT}",
      "A worker that was running it was not interrupted; if it reports success, the run succeeds."]),
    ("emitted", {"finished_at": after(0.02)},
     [f"Emitted at {at(0.01)}, confirmed at {at(0.02)}.",
      "Its job is not tracked; the outcome is unknown."]),
    ("expected", {"noted_at": after(0), "occurrence": None},
     [f"Results for this event arrived before a producer recorded it, the first at {at(0)}.",
      f"They are dropped unless a producer records it by {at(3600)}, in 59 min."]),
])
def test_the_state_and_next_step_of_a_run(status, changed, lines):
    assert standing(status, **changed) == lines


def test_fields_and_attempts_are_tables():
    facts, _, attempts = parts("dead", attempts=(attempt(1), attempt(2, "lost", started_at=None, error=None)),
                               finished_at=after(33), attempt=2, counted=2, output='{"sent": 1}', output_cut=True)
    assert facts == [
        f"run      {EVENT}", f"job      {JOB}", "type     invoice.reminder", f"due      {at(0)}, by its schedule",
        "status   dead", "attempt  2 of 3", 'output   {"sent": 1} (truncated)',
    ]
    assert [line.split() for line in attempts] == [
        ["ATTEMPT", "OUTCOME", "STARTED", "FINISHED", "DURATION", "WORKER", "ERROR"],
        ["1", "failed", at(10), at(12.5), "2.500", "s", "w1", "no"],
        ["2", "lost", at(22.5), "w1"],
    ]


def test_a_list_is_a_table_with_the_attempts_that_count():
    head, first, second = rows([run("dead", error="no\x1b[2J", worker="w1", attempt=5, counted=3),
                                run("emitted", occurrence=replace(OCCURRENCE, policy=None))])
    assert head.split() == ["DUE", "STATUS", "ATTEMPT", "TYPE", "EVENT", "WORKER", "ERROR"]
    assert first.split() == [at(0), "dead", "5", "(3", "of", "3)", "invoice.reminder", EVENT, "w1", "no?[2J"]
    assert second.split() == [at(0), "emitted", "1", "invoice.reminder", EVENT]


def test_control_characters_are_replaced():
    nasty = "a\x1b[2Jb\n" + "y" * 5000
    ended = (attempt(1, error=nasty, worker=nasty[:200]),)
    occurrence = replace(OCCURRENCE, job_type="a\x1b\x9bb")
    dead = run("dead", attempts=ended, finished_at=DUE, output=json.dumps(nasty), occurrence=occurrence)
    lines = explain(RunReport(dead, announced=True, producers=1, now=DUE))
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 700


def test_a_run_is_json_with_the_fields_of_the_contract():
    succeeded = run("succeeded", attempts=(attempt(1, "succeeded", output="[1]"),), started_at=after(1),
                finished_at=after(3.5), worker="w1", output='{"sent": true}')
    values = json.loads(run_json(succeeded))
    assert values.pop("attempts") == [{
        "attempt": 1, "outcome": "succeeded", "worker": "w1", "started_at": at(10), "finished_at": at(12.5),
        "error": "no", "output": [1],
    }]
    assert values == json.loads(as_json(run_view(succeeded))) == {
        "event_id": EVENT, "job_id": JOB, "job_type": "invoice.reminder", "tenant": "default", "due_at": at(0),
        "origin": "schedule", "status": "succeeded", "attempt": 1, "max_attempts": 3, "deadline": None,
        "retry_at": None, "started_at": at(1), "finished_at": at(3.5), "duration_ms": 2500, "worker": "w1",
        "error": None, "output": {"sent": True}, "progress": None,
        "triggered_by": {"via": "schedule", "who": None}, "emitted_by": None,
    }


def test_a_run_with_results_only_is_json_too():
    values = json.loads(run_json(Run(EVENT, RunStatus.EXPECTED)))
    assert values["attempts"] == []
    assert {values[name] for name in ("job_id", "due_at", "origin", "max_attempts")} == {None}
