"""`scheduler run show` and `list` tell in words why a run is where it is and what comes next."""

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
ABOUT = Occurrence(JOB, "invoice.reminder", DUE, Origin.SCHEDULE, RunPolicy(), "{}")


def after(seconds):
    return DUE + timedelta(seconds=seconds)


def at(seconds):
    return rfc3339(after(seconds))


def attempt(number, outcome="failed", **changed):
    made = {"worker": "w1", "started_at": after(10 * number), "finished_at": after(10 * number + 2.5),
            "error": "no", "output": None}
    return FinishedAttempt(number, AttemptOutcome(outcome), **made | changed)


def run(status, **changed):
    made = {"attempt": 1, "counted": 1, "emitted_at": after(0.01), "occurrence": ABOUT}
    return Run(EVENT, RunStatus(status), **made | changed)


def parts(status, *, now=60, producers=1, told=True, **changed):
    text = "\n".join(explain(RunReport(run(status, **changed), told, producers, after(now))))
    return [part.splitlines() for part in text.split("\n\n")]


def standing(status, **changed):
    return parts(status, **changed)[1]


MORE = "`scheduler run retry` gives it a fresh set of attempts, at once."


@pytest.mark.parametrize(("status", "changed", "lines"), [
    ("delivered", {"deadline": after(3600)},
     [f"Attempt 1 went out at {at(0.01)}; nobody has reported to have started it.",
      f"A worker has to report so by {at(3600)}, in 59 min.",
      "If it fails, it is tried again: up to 2 times more."]),
    ("delivered", {"deadline": after(50), "attempt": 3, "counted": 3, "producers": 0},
     [f"Attempt 3 went out at {at(0.01)}; nobody has reported to have started it.",
      f"Its time was up at {at(50)}, 10.0 s ago: a producer is to end the attempt.",
      "It is the last attempt: if it fails, the run is given up.",
      "No producer runs: nothing happens until one is started."]),
    ("running", {"deadline": after(300), "alive_until": after(90), "started_at": after(1), "worker": "w1",
                 "progress": 0.5, "attempt": 2, "counted": 2},
     [f"w1 has been at attempt 2 since {at(1)}; 50% is done.",
      f"A sign of life has to come by {at(90)}, in 30.0 s.",
      f"Its result has to come by {at(300)}, in 4 min.",
      "If it fails, it is tried again: once more."]),
    ("running", {"deadline": after(300), "started_at": after(1)},
     [f"A worker that gave no name has been at attempt 1 since {at(1)}.",
      f"Its result has to come by {at(300)}, in 4 min.",
      "If it fails, it is tried again: up to 2 times more."]),
    ("waiting", {"attempts": (attempt(1),), "retry_at": after(72.5)},
     [f"Attempt 1 failed at {at(12.5)}: no.", f"Attempt 2 is made at {at(72.5)}, in 12.5 s."]),
    ("waiting", {"attempts": (attempt(1, "snoozed", error=None),), "retry_at": after(50), "counted": 0},
     [f"Attempt 1 was put off by w1 at {at(12.5)}.",
      f"Attempt 2 has been due since {at(50)}, for 10.0 s: it goes out at any moment."]),
    ("waiting", {"attempts": (attempt(1, "lost"),), "retry_at": after(61), "counted": 0, "retried_at": after(55)},
     [f"Attempt 1 was lost at {at(12.5)}: no.",
      f"A retry issued at {at(55)} gave it a fresh set of attempts.",
      f"Attempt 2 is made at {at(61)}, in 1.000 s."]),
    ("succeeded", {"attempts": (attempt(1), attempt(2, "succeeded", worker="w2")), "finished_at": after(30)},
     [f"Succeeded at {at(30)} with attempt 2, by w2: nothing more happens."]),
    ("succeeded", {"attempts": (attempt(1, "succeeded", worker=None),), "finished_at": after(30), "told": False},
     [f"Succeeded at {at(30)} with attempt 1, by a worker that gave no name: nothing more happens.",
      "Those who listen for ScheduleFinished have not been told yet: a producer does so."]),
    ("dead", {"attempts": (attempt(3, "timed_out"),), "finished_at": after(33), "attempt": 3, "counted": 3},
     [f"Attempt 3 timed out at {at(32.5)}: no.",
      f"Given up at {at(33)}: all 3 attempts were made.",
      f"The event lies in scheduler_dead. {MORE}"]),
    ("dead", {"attempts": (attempt(1),), "finished_at": after(33), "producers": 0},
     [f"Attempt 1 failed at {at(12.5)}: no.",
      f"Given up at {at(33)}: its worker said that to try again would not help.",
      f"The event lies in scheduler_dead. {MORE}"]),
    ("cancelled", {"finished_at": after(33)},
     [f"Cancelled at {at(33)}, with its job: no further attempt is made. {MORE}",
      "A worker that was at it was not interrupted; if it reports a success, that counts."]),
    ("emitted", {"finished_at": after(0.02)},
     [f"Emitted at {at(0.01)}, confirmed at {at(0.02)}.",
      "Its job is not tracked: what became of it is not known."]),
    ("expected", {"noted_at": after(0), "occurrence": None},
     [f"Of this event nothing is known but what was reported of it, first at {at(0)}.",
      f"Unless a producer records the event by {at(3600)}, in 59 min, that is dropped."]),
])
def test_why_a_run_is_where_it_is_and_what_comes_next(status, changed, lines):
    assert standing(status, **changed) == lines


def test_what_it_is_and_its_attempts_are_tables():
    facts, _, attempts = parts("dead", attempts=(attempt(1), attempt(2, "lost", started_at=None, error=None)),
                               finished_at=after(33), attempt=2, counted=2, output='{"sent": 1}', output_cut=True)
    assert facts == [
        f"run      {EVENT}", f"job      {JOB}", "type     invoice.reminder", f"due      {at(0)}, by its schedule",
        "status   dead", "attempt  2 of 3", 'output   {"sent": 1} (only its beginning was kept)',
    ]
    assert [line.split() for line in attempts] == [
        ["ATTEMPT", "OUTCOME", "STARTED", "FINISHED", "TOOK", "WORKER", "ERROR"],
        ["1", "failed", at(10), at(12.5), "2.500", "s", "w1", "no"],
        ["2", "lost", at(22.5), "w1"],
    ]


def test_a_list_is_a_table_and_tells_attempts_that_count():
    head, first, second = rows([run("dead", error="no\x1b[2J", worker="w1", attempt=5, counted=3),
                                run("emitted", occurrence=replace(ABOUT, policy=None))])
    assert head.split() == ["DUE", "STATUS", "ATTEMPT", "TYPE", "EVENT", "WORKER", "ERROR"]
    assert first.split() == [at(0), "dead", "5", "(3", "of", "3)", "invoice.reminder", EVENT, "w1", "no?[2J"]
    assert second.split() == [at(0), "emitted", "1", "invoice.reminder", EVENT]


def test_nothing_reaches_the_terminal_as_a_command():
    nasty = "a\x1b[2Jb\n" + "y" * 5000
    ended = (attempt(1, error=nasty, worker=nasty[:200]),)
    about = replace(ABOUT, job_type="a\x1b\x9bb")
    known = run("dead", attempts=ended, finished_at=DUE, output=json.dumps(nasty), occurrence=about)
    lines = explain(RunReport(known, told=True, producers=1, now=DUE))
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 700


def test_a_run_is_json_as_the_contract_has_it():
    known = run("succeeded", attempts=(attempt(1, "succeeded", output="[1]"),), started_at=after(1),
                finished_at=after(3.5), worker="w1", output='{"sent": true}')
    values = json.loads(run_json(known))
    assert values.pop("attempts") == [{
        "attempt": 1, "outcome": "succeeded", "worker": "w1", "started_at": at(10), "finished_at": at(12.5),
        "error": "no", "output": [1],
    }]
    assert values == json.loads(as_json(run_view(known))) == {
        "event_id": EVENT, "job_id": JOB, "job_type": "invoice.reminder", "tenant": "default", "due_at": at(0),
        "origin": "schedule", "status": "succeeded", "attempt": 1, "max_attempts": 3, "deadline": None,
        "retry_at": None, "started_at": at(1), "finished_at": at(3.5), "duration_ms": 2500, "worker": "w1",
        "error": None, "output": {"sent": True}, "progress": None,
    }


def test_a_run_of_which_only_results_are_known_is_json_too():
    values = json.loads(run_json(Run(EVENT, RunStatus.EXPECTED)))
    assert values["attempts"] == []
    assert {values[name] for name in ("job_id", "due_at", "origin", "max_attempts")} == {None}
