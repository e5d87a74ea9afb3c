"""`scheduler job show` tells in words where a job stands and why its last event was late."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.cli.show.job import explain, stored_values
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.job import JobStatus
from scheduler.postgres.jobs.report import JobReport

DUE = datetime(2026, 12, 1, 8, tzinfo=UTC)
DAY = timedelta(days=1)
NOTHING_CLAIMED = (
    "nothing claimed it in time. No producer ran, the database or the broker was away, or more was due than could "
    "go out."
)
UNBOUND = "no queue is bound with the key due"
NOT_KNOWN = "a time that is not on record"


def after(seconds):
    return DUE + timedelta(seconds=seconds)


def at(seconds):
    return rfc3339(after(seconds))


# Emitted on time, an hour ago; due again the next day.
JOB = JobReport(
    id="0b6f9c1e-6f0c-4b50-9b0e-0d8a3f3f2a11", status=JobStatus.PENDING, job_type="invoice.reminder",
    rrule="FREQ=DAILY", cron=None, every=None, timezone="Europe/Berlin", starts_at=DUE, next_run_at=DUE + DAY,
    occurrence=1, retries=0, retry_at=None, triggers=(), trigger_at=None, triggered_at=None, wake_at=DUE + DAY,
    requested_at=DUE - DAY, cancelled_at=None, paused_at=None, resumed_at=None, created_at=DUE - DAY,
    finished_at=None, last_due_at=DUE, last_emitted_at=after(0.003), last_confirmed_at=after(0.007),
    last_problem=None, last_problem_at=None, last_problem_due_at=None, last_refusals=None, in_hand=False,
    producers=2, consumers=1, now=after(3600),
)


def parts(**changed):
    """Return the table, the sentences on where it stands, and those on the last event."""
    text = "\n".join(explain(replace(JOB, **changed)))
    return [part.splitlines() for part in text.split("\n\n")]


def standing(**changed):
    return parts(**changed)[1]


def last_event(**changed):
    return parts(**changed)[2]


def emitted(seconds, confirm=0.004, **changed):
    """Return why an event that was emitted so late was late."""
    times = {"last_emitted_at": after(seconds), "last_confirmed_at": after(seconds + confirm)}
    return last_event(**times | changed)[1:]


def test_a_job_on_time():
    assert explain(JOB) == [
        "job        0b6f9c1e-6f0c-4b50-9b0e-0d8a3f3f2a11",
        "type       invoice.reminder",
        "schedule   FREQ=DAILY in Europe/Berlin",
        "requested  2026-11-30T08:00:00.000000Z",
        "status     pending",
        "emitted    1 event",
        "",
        "Its next run is 2026-12-02T08:00:00.000000Z, in 23 h.",
        "",
        "The last event was due 2026-12-01T08:00:00.000000Z, emitted 0.003 s later, confirmed 0.004 s after that.",
        "That was on time.",
    ]


@pytest.mark.parametrize(("changed", "shown"), [
    ({"rrule": None, "cron": "30 2 * * 1-5"}, "30 2 * * 1-5 in Europe/Berlin"),
    ({"rrule": "DTSTART:20261201T090000\nRRULE:FREQ=DAILY"},
     "DTSTART:20261201T090000 RRULE:FREQ=DAILY in Europe/Berlin"),
    ({"rrule": None, "every": timedelta(seconds=90)}, "every 90.0 s"),
    ({"rrule": None, "every": timedelta(minutes=15)}, "every 15 min"),
    ({"rrule": None}, "once, at 2026-12-01T08:00:00.000000Z"),
    ({"rrule": None, "starts_at": None}, "once"),
])
def test_the_schedule_as_it_was_written(changed, shown):
    assert parts(**changed)[0][2] == f"schedule   {shown}"


def test_what_is_not_known_yet_is_said_so():
    table = parts(status=JobStatus.AWAITING, job_type=None, requested_at=None, occurrence=0)[0]
    assert "type       not known yet" in table
    assert "requested  not yet" in table
    assert "emitted    0 events" in table


@pytest.mark.parametrize(("changed", "lines"), [
    ({"status": JobStatus.DONE, "finished_at": DUE, "wake_at": None},
     [f"Done at {at(0)}: every occurrence was emitted or passed over."]),
    ({"status": JobStatus.DONE},
     [f"Done at {NOT_KNOWN}: every occurrence was emitted or passed over."]),
    ({"status": JobStatus.CANCELLED, "finished_at": after(2), "cancelled_at": after(1)},
     [f"Cancelled at {at(2)}, by a cancel issued at {at(1)}: nothing more goes out."]),
    ({"status": JobStatus.CANCELLED, "finished_at": after(2), "cancelled_at": after(1), "requested_at": None},
     [f"Cancelled at {at(2)}, by a cancel issued at {at(1)}: nothing more goes out.",
      "Its request has not come; one that was issued before the cancel will change nothing."]),
    ({"status": JobStatus.PAUSED, "paused_at": DUE},
     [f"Paused, by a pause issued at {at(0)}: nothing goes out until it is resumed.",
      f"Its next run is {at(86400)}, in 23 h."]),
    ({"status": JobStatus.PAUSED, "paused_at": DUE, "next_run_at": after(60), "triggers": (DUE, after(1))},
     [f"Paused, by a pause issued at {at(0)}: nothing goes out until it is resumed.",
      f"Its next run was due {at(60)}, 59 min ago.",
      f"2 triggers wait to be emitted, the oldest issued at {at(0)}."]),
    ({"status": JobStatus.PAUSED, "paused_at": DUE, "next_run_at": None},
     [f"Paused, by a pause issued at {at(0)}: nothing goes out until it is resumed."]),
    ({"status": JobStatus.AWAITING},
     ["A pause, resume or trigger came before its request: there is nothing to run until that comes."]),
    ({"status": JobStatus.AWAITING, "consumers": 0},
     ["A pause, resume or trigger came before its request: there is nothing to run until that comes.",
      "No consumer runs: its request may wait in scheduler_inbox."]),
    ({"producers": 0},
     [f"Its next run is {at(86400)}, in 23 h.",
      "No producer runs: nothing goes out until one is started."]),
    ({"next_run_at": None, "wake_at": None},
     ["It has no next run: nothing happens until a new request or a trigger comes."]),
])
def test_where_a_job_stands(changed, lines):
    assert standing(**changed) == lines


OVERDUE = {"next_run_at": after(3590), "wake_at": after(3590)}


@pytest.mark.parametrize(("changed", "lines"), [
    ({"producers": 2},
     [f"Due since {at(3590)}, for 10.0 s: nothing has claimed it.",
      "2 producers run: /readyz of each says what it lacks, scheduler top how much is due."]),
    ({"producers": 1},
     [f"Due since {at(3590)}, for 10.0 s: nothing has claimed it.",
      "1 producer runs: /readyz of each says what it lacks, scheduler top how much is due."]),
    ({"producers": 0},
     [f"Due since {at(3590)}, for 10.0 s: nothing has claimed it.",
      "No producer runs: nothing goes out until one is started."]),
    ({"in_hand": True},
     [f"Due since {at(3590)}, for 10.0 s: a replica has it in hand at this moment."]),
    ({"triggers": (after(3589),), "trigger_at": after(3590), "next_run_at": DUE + DAY, "in_hand": True},
     [f"Due since {at(3590)}, for 10.0 s: a replica has it in hand at this moment.",
      f"1 trigger waits to be emitted, the oldest issued at {at(3589)}."]),
])
def test_a_job_that_is_overdue(changed, lines):
    assert standing(**OVERDUE | changed) == lines


REFUSED = {
    "next_run_at": after(3590), "retries": 3, "retry_at": after(3604), "wake_at": after(3604),
    "last_problem": UNBOUND, "last_problem_at": after(3600), "last_problem_due_at": after(3590),
    "last_refusals": 3,
}


@pytest.mark.parametrize(("changed", "lines"), [
    ({}, [f"The broker has refused its event due {at(3590)}, 3 times, the last time at {at(3600)}: {UNBOUND}.",
          f"It is tried again at {at(3604)}, in 4.000 s."]),
    ({"retries": 1, "retry_at": after(3599), "wake_at": after(3599), "last_problem_at": after(3598)},
     [f"The broker has refused its event due {at(3590)}, once, at {at(3598)}: {UNBOUND}.",
      f"Its next try has been due since {at(3599)}, for 1.000 s: nothing has claimed it.",
      "2 producers run: /readyz of each says what it lacks, scheduler top how much is due."]),
    ({"last_problem": None, "last_problem_at": None, "last_problem_due_at": None, "last_refusals": None},
     [f"The broker has refused its event due {at(3590)}, 3 times; why is not on record.",
      f"It is tried again at {at(3604)}, in 4.000 s."]),
    ({"next_run_at": None, "last_problem": None},
     ["The broker has refused its event, 3 times; why is not on record.",
      f"It is tried again at {at(3604)}, in 4.000 s."]),
])
def test_a_job_that_the_broker_refuses_now(changed, lines):
    assert standing(**REFUSED | changed) == lines
    assert last_event(**REFUSED | changed)[1:] == ["That was on time."]  # the refusal is not told twice


@pytest.mark.parametrize(("occurrence", "line"), [
    (0, "It has emitted no event yet."),
    (4, "When its last event went out is not on record: that was before this was kept."),
])
def test_a_job_of_whose_last_event_nothing_is_known(occurrence, line):
    unknown = {"last_due_at": None, "last_emitted_at": None, "last_confirmed_at": None}
    assert last_event(occurrence=occurrence, **unknown) == [line]


@pytest.mark.parametrize(("seconds", "confirm", "lines"), [
    (0.1, 0.4, ["That was on time."]),
    (0.1, 2.5, ["It was emitted in time, but the broker took 2.500 s to confirm it."]),
    (0.4, 0.3, ["It was emitted in time, but the broker took 0.300 s to confirm it."]),
    (11.2, 0.004, [f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}"]),
    (11.2, 7.0, [f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}",
                 "Then the broker took 7.000 s to confirm it."]),
])
def test_why_the_last_event_was_late(seconds, confirm, lines):
    assert emitted(seconds, confirm) == lines


def refused(**changed):
    return {"last_problem": UNBOUND + ".", "last_problem_at": after(7.5), "last_problem_due_at": DUE,
            "last_refusals": 3} | changed


def three_times(seconds):
    return f"refused 3 times, the last time at {at(seconds)}: {UNBOUND}."


@pytest.mark.parametrize(("seconds", "problem", "lines"), [
    (11.2, refused(),
     [f"It was late: the broker refused it 3 times, the last time at {at(7.5)}: {UNBOUND}."]),
    (1.2, refused(last_refusals=1, last_problem_at=after(0.5)),
     [f"It was late: the broker refused it once, at {at(0.5)}: {UNBOUND}."]),
    (2.2, refused(last_refusals=2, last_problem_at=after(1)),
     [f"It was late: the broker refused it twice, the last time at {at(1)}: {UNBOUND}."]),
    (11.2, refused(last_refusals=None, last_problem_at=None, last_problem=None),
     [f"It was late: the broker refused it at least once, the last time at {NOT_KNOWN}: why is not on record."]),
    # The next try comes a minute later at most.
    (3600, refused(),
     [f"It was late: the broker refused it 3 times, the last time at {at(7.5)}: {UNBOUND}.",
      f"After that {NOTHING_CLAIMED}"]),
    # What a host missed is folded into the newest occurrence, so that another one was refused than went out.
    (11.2, refused(last_problem_due_at=after(-60)),
     [f"It was late: it waited behind the event due {at(-60)}, {three_times(7.5)}"]),
    # Long ago, or afterwards: that is not why.
    (11.2, refused(last_problem_due_at=DUE - DAY, last_problem_at=DUE - DAY),
     [f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}",
      f"The newest refusal was of the event due {at(-86400)}, {three_times(-86400)}"]),
    (0.1, refused(last_problem_due_at=None, last_refusals=1),
     ["That was on time.",
      f"The newest refusal was of the event, refused once, at {at(7.5)}: {UNBOUND}."]),
])
def test_refusals_are_told_with_their_reason(seconds, problem, lines):
    assert emitted(seconds, **problem) == lines


@pytest.mark.parametrize(("changed", "lines"), [
    ({"requested_at": after(11), "created_at": after(11.1)},
     [f"It was requested only at {at(11)} and stored at {at(11.1)}, when it was due already."]),
    ({"requested_at": after(11)},
     [f"It was requested only at {at(11)}, when it was due already."]),
    ({"created_at": after(11)},
     [f"It was stored only at {at(11)}, when it was due already: its request waited for a consumer."]),
    ({"paused_at": after(-5), "resumed_at": after(11)},
     [f"It was paused until {at(11)}, when it was due already."]),
    ({"paused_at": after(-5), "resumed_at": after(2)},
     [f"It was paused until {at(2)}, when it was due already.",
      f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}"]),
    ({"resumed_at": after(11)}, [f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}"]),
    ({"requested_at": after(60)}, [f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}"]),
    ({"triggered_at": DUE},
     ["It was a trigger: due as soon as it was issued, out once a consumer has stored it.",
      f"It was late, and no refusal of it is on record: {NOTHING_CLAIMED}"]),
])
def test_what_came_after_it_was_due_is_why_it_was_late(changed, lines):
    assert emitted(11.2, **changed) == lines


@pytest.mark.parametrize(("seconds", "shown"), [
    (-1, "0.000 s"), (9.9994, "9.999 s"), (11.24, "11.2 s"), (119.9, "119.9 s"), (120, "2 min"),
    (125.4, "2 min 5 s"), (3599.9, "1 h"), (7260, "2 h 1 min"), (86400 * 3 + 7200, "3 d 2 h"),
])
def test_spans_have_as_many_digits_as_matter(seconds, shown):
    [told, *_] = last_event(last_emitted_at=after(seconds), last_confirmed_at=DUE + 10 * DAY)
    assert f"emitted {shown} later" in told


def test_nothing_reaches_the_terminal_as_a_command():
    nasty = {"job_type": "a\x1b[2Jb\nc", "rrule": "FREQ=DAILY\r\x9b", "timezone": "UTC\x07",
             "last_problem": "no\x1b]0;x\n" + "y" * 1000}
    lines = explain(replace(JOB, **REFUSED | nasty))
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 700
    assert "type       a?[2Jb?c" in lines


def test_the_stored_values_are_json():
    values = json.loads(json.dumps(stored_values(replace(JOB, every=timedelta(minutes=15), triggers=(DUE,)))))
    assert values.keys() == set(JobReport.__dataclass_fields__)
    assert values["id"] == JOB.id
    assert values["status"] == "pending"
    assert values["last_emitted_at"] == "2026-12-01T08:00:00.003000Z"
    assert values["every"] == 900
    assert values["triggers"] == ["2026-12-01T08:00:00.000000Z"]
    assert values["last_problem"] is None
