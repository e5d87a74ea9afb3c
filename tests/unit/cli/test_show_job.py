"""`scheduler job show` describes a job's state and why its last event was late."""

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
NOT_CLAIMED = (
    "no producer claimed it in time. No producer was running, Postgres or RabbitMQ was unavailable, or the "
    "backlog was too large."
)
UNBOUND = "no queue is bound with the key due"
UNKNOWN = "an unknown time"


def after(seconds):
    return DUE + timedelta(seconds=seconds)


def at(seconds):
    return rfc3339(after(seconds))


# Emitted on time, an hour ago; due again the next day.
JOB = JobReport(
    id="0b6f9c1e-6f0c-4b50-9b0e-0d8a3f3f2a11", status=JobStatus.PENDING, job_type="invoice.reminder",
    name=None, description=None, tenant="default", route=None, payload='{"invoice": 42}', target=None,
    rrule="FREQ=DAILY", cron=None, every=None,
    timezone="Europe/Berlin", starts_at=DUE, manual=False, next_run_at=DUE + DAY,
    occurrence=1, retries=0, retry_at=None, triggers=(), trigger_at=None, triggered_at=None, wake_at=DUE + DAY,
    requested_at=DUE - DAY, cancelled_at=None, paused_at=None, resumed_at=None, created_at=DUE - DAY,
    finished_at=None, last_due_at=DUE, last_emitted_at=after(0.003), last_confirmed_at=after(0.007),
    last_problem=None, last_problem_at=None, last_problem_due_at=None, last_refusals=None, in_hand=False,
    producers=2, consumers=1, now=after(3600),
)


def parts(**changed):
    """Return the table, the sentences on the job's state, and those on the last event."""
    text = "\n".join(explain(replace(JOB, **changed)))
    return [part.splitlines() for part in text.split("\n\n")]


def standing(**changed):
    return parts(**changed)[1]


def last_event(**changed):
    return parts(**changed)[2]


def emitted(seconds, confirm=0.004, **changed):
    """Return the explanation for an event emitted `seconds` late."""
    times = {"last_emitted_at": after(seconds), "last_confirmed_at": after(seconds + confirm)}
    return last_event(**times | changed)[1:]


def test_a_job_on_time():
    assert explain(JOB) == [
        "job        0b6f9c1e-6f0c-4b50-9b0e-0d8a3f3f2a11",
        "type       invoice.reminder",
        'payload    {"invoice": 42}',
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


@pytest.mark.parametrize(("changed", "text"), [
    ({"rrule": None, "cron": "30 2 * * 1-5"}, "30 2 * * 1-5 in Europe/Berlin"),
    ({"rrule": "DTSTART:20261201T090000\nRRULE:FREQ=DAILY"},
     "DTSTART:20261201T090000 RRULE:FREQ=DAILY in Europe/Berlin"),
    ({"rrule": None, "every": timedelta(seconds=90)}, "every 90.0 s"),
    ({"rrule": None, "every": timedelta(minutes=15)}, "every 15 min"),
    ({"rrule": None}, "once, at 2026-12-01T08:00:00.000000Z"),
    ({"rrule": None, "starts_at": None}, "once"),
])
def test_the_schedule_is_printed_as_written(changed, text):
    assert parts(**changed)[0][3] == f"schedule   {text}"


def test_the_owner_and_the_route_are_shown():
    facts = parts(tenant="acme", route="mails")[0]
    assert {"tenant     acme", "route      mails"} <= set(facts)


def test_a_target_is_shown_without_its_credentials():
    target = {"webhook": {"url": "https://example.org/hook", "headers": {"x-key": "sesame"}}}
    [line] = [line for line in parts(target=json.dumps(target))[0] if line.startswith("target")]
    assert "example.org/hook" in line
    assert "sesame" not in line


def test_missing_fields_are_marked():
    table = parts(status=JobStatus.AWAITING, job_type=None, requested_at=None, occurrence=0)[0]
    assert "type       unknown" in table
    assert "requested  not yet" in table
    assert "emitted    0 events" in table


@pytest.mark.parametrize(("changed", "lines"), [
    ({"status": JobStatus.DONE, "finished_at": DUE, "wake_at": None},
     [f"Done at {at(0)}: every occurrence was emitted or skipped."]),
    ({"status": JobStatus.DONE},
     [f"Done at {UNKNOWN}: every occurrence was emitted or skipped."]),
    ({"status": JobStatus.CANCELLED, "finished_at": after(2), "cancelled_at": after(1)},
     [f"Cancelled at {at(2)} by a cancel issued at {at(1)}; no more events are emitted."]),
    ({"status": JobStatus.CANCELLED, "finished_at": after(2), "cancelled_at": after(1), "requested_at": None},
     [f"Cancelled at {at(2)} by a cancel issued at {at(1)}; no more events are emitted.",
      "Its request has not arrived; a request issued before the cancel is ignored."]),
    ({"status": JobStatus.PAUSED, "paused_at": DUE},
     [f"Paused by a pause issued at {at(0)}; no events are emitted until it is resumed.",
      f"Its next run is {at(86400)}, in 23 h."]),
    ({"status": JobStatus.PAUSED, "paused_at": DUE, "next_run_at": after(60), "triggers": (DUE, after(1))},
     [f"Paused by a pause issued at {at(0)}; no events are emitted until it is resumed.",
      f"Its next run was due {at(60)}, 59 min ago.",
      f"2 triggers are pending, the oldest issued at {at(0)}."]),
    ({"status": JobStatus.PAUSED, "paused_at": DUE, "next_run_at": None},
     [f"Paused by a pause issued at {at(0)}; no events are emitted until it is resumed."]),
    ({"status": JobStatus.AWAITING},
     ["A pause, resume or trigger arrived before the job's request; it runs once that arrives."]),
    ({"status": JobStatus.AWAITING, "consumers": 0},
     ["A pause, resume or trigger arrived before the job's request; it runs once that arrives.",
      "No consumer is running: the request may be queued in scheduler_inbox."]),
    ({"producers": 0},
     [f"Its next run is {at(86400)}, in 23 h.",
      "No producer is running: no events are emitted until one starts."]),
    ({"next_run_at": None, "wake_at": None},
     ["It has no next run; a new request or a trigger can start it."]),
])
def test_the_state_of_a_job(changed, lines):
    assert standing(**changed) == lines


OVERDUE = {"next_run_at": after(3590), "wake_at": after(3590)}


@pytest.mark.parametrize(("changed", "lines"), [
    ({"producers": 2},
     [f"Due since {at(3590)}, for 10.0 s; no producer has claimed it.",
      "2 producers are running: check /readyz of each, and the backlog in `scheduler top`."]),
    ({"producers": 1},
     [f"Due since {at(3590)}, for 10.0 s; no producer has claimed it.",
      "1 producer is running: check /readyz of each, and the backlog in `scheduler top`."]),
    ({"producers": 0},
     [f"Due since {at(3590)}, for 10.0 s; no producer has claimed it.",
      "No producer is running: no events are emitted until one starts."]),
    ({"in_hand": True},
     [f"Due since {at(3590)}, for 10.0 s; a replica is processing it."]),
    ({"triggers": (after(3589),), "trigger_at": after(3590), "next_run_at": DUE + DAY, "in_hand": True},
     [f"Due since {at(3590)}, for 10.0 s; a replica is processing it.",
      f"1 trigger is pending, the oldest issued at {at(3589)}."]),
])
def test_an_overdue_job(changed, lines):
    assert standing(**OVERDUE | changed) == lines


REJECTED = {
    "next_run_at": after(3590), "retries": 3, "retry_at": after(3604), "wake_at": after(3604),
    "last_problem": UNBOUND, "last_problem_at": after(3600), "last_problem_due_at": after(3590),
    "last_refusals": 3,
}


@pytest.mark.parametrize(("changed", "lines"), [
    ({}, [f"The broker rejected its event due {at(3590)} 3 times, last at {at(3600)}: {UNBOUND}.",
          f"It is retried at {at(3604)}, in 4.000 s."]),
    ({"retries": 1, "retry_at": after(3599), "wake_at": after(3599), "last_problem_at": after(3598)},
     [f"The broker rejected its event due {at(3590)} once, at {at(3598)}: {UNBOUND}.",
      f"Its retry has been due since {at(3599)}, for 1.000 s; no producer has claimed it.",
      "2 producers are running: check /readyz of each, and the backlog in `scheduler top`."]),
    ({"last_problem": None, "last_problem_at": None, "last_problem_due_at": None, "last_refusals": None},
     [f"The broker rejected its event due {at(3590)} 3 times; the reason is unknown.",
      f"It is retried at {at(3604)}, in 4.000 s."]),
    ({"next_run_at": None, "last_problem": None},
     ["The broker rejected its event 3 times; the reason is unknown.",
      f"It is retried at {at(3604)}, in 4.000 s."]),
])
def test_a_job_whose_event_the_broker_rejects(changed, lines):
    assert standing(**REJECTED | changed) == lines
    assert last_event(**REJECTED | changed)[1:] == ["That was on time."]  # the rejection is described once


@pytest.mark.parametrize(("occurrence", "line"), [
    (0, "It has emitted no event yet."),
    (4, "The time of its last event is unknown: an older version emitted it."),
])
def test_a_job_without_a_recorded_event(occurrence, line):
    unknown = {"last_due_at": None, "last_emitted_at": None, "last_confirmed_at": None}
    assert last_event(occurrence=occurrence, **unknown) == [line]


@pytest.mark.parametrize(("seconds", "confirm", "lines"), [
    (0.1, 0.4, ["That was on time."]),
    (0.1, 2.5, ["It was emitted on time, but the broker took 2.500 s to confirm it."]),
    (0.4, 0.3, ["It was emitted on time, but the broker took 0.300 s to confirm it."]),
    (11.2, 0.004, [f"It was late without a rejection: {NOT_CLAIMED}"]),
    (11.2, 7.0, [f"It was late without a rejection: {NOT_CLAIMED}",
                 "Then the broker took 7.000 s to confirm it."]),
])
def test_why_the_last_event_was_late(seconds, confirm, lines):
    assert emitted(seconds, confirm) == lines


def rejected(**changed):
    return {"last_problem": UNBOUND + ".", "last_problem_at": after(7.5), "last_problem_due_at": DUE,
            "last_refusals": 3} | changed


def three_times(seconds):
    return f"rejected 3 times, last at {at(seconds)}: {UNBOUND}."


@pytest.mark.parametrize(("seconds", "problem", "lines"), [
    (11.2, rejected(),
     [f"It was late: the broker rejected it 3 times, last at {at(7.5)}: {UNBOUND}."]),
    (1.2, rejected(last_refusals=1, last_problem_at=after(0.5)),
     [f"It was late: the broker rejected it once, at {at(0.5)}: {UNBOUND}."]),
    (2.2, rejected(last_refusals=2, last_problem_at=after(1)),
     [f"It was late: the broker rejected it twice, last at {at(1)}: {UNBOUND}."]),
    (11.2, rejected(last_refusals=None, last_problem_at=None, last_problem=None),
     [f"It was late: the broker rejected it at least once, last at {UNKNOWN}: unknown reason."]),
    # The longest backoff is a minute.
    (3600, rejected(),
     [f"It was late: the broker rejected it 3 times, last at {at(7.5)}: {UNBOUND}.",
      f"After that, {NOT_CLAIMED}"]),
    # Missed occurrences are coalesced into the newest, so the rejected event can differ from the emitted one.
    (11.2, rejected(last_problem_due_at=after(-60)),
     [f"It was late: it waited for the event due {at(-60)}, {three_times(7.5)}"]),
    # A rejection long before or after the event is not the cause.
    (11.2, rejected(last_problem_due_at=DUE - DAY, last_problem_at=DUE - DAY),
     [f"It was late without a rejection: {NOT_CLAIMED}",
      f"The latest rejection was for the event due {at(-86400)}, {three_times(-86400)}"]),
    (0.1, rejected(last_problem_due_at=None, last_refusals=1),
     ["That was on time.",
      f"The latest rejection was for the event, rejected once, at {at(7.5)}: {UNBOUND}."]),
])
def test_rejections_are_described_with_their_reason(seconds, problem, lines):
    assert emitted(seconds, **problem) == lines


@pytest.mark.parametrize(("changed", "lines"), [
    ({"requested_at": after(11), "created_at": after(11.1)},
     [f"It was already due when it was requested at {at(11)} and stored at {at(11.1)}."]),
    ({"requested_at": after(11)},
     [f"It was already due when it was requested at {at(11)}."]),
    ({"created_at": after(11)},
     [f"It was already due when it was stored at {at(11)}: its request waited for a consumer."]),
    ({"paused_at": after(-5), "resumed_at": after(11)},
     [f"It was already due when it was resumed at {at(11)}."]),
    ({"paused_at": after(-5), "resumed_at": after(2)},
     [f"It was already due when it was resumed at {at(2)}.",
      f"It was late without a rejection: {NOT_CLAIMED}"]),
    ({"resumed_at": after(11)}, [f"It was late without a rejection: {NOT_CLAIMED}"]),
    ({"requested_at": after(60)}, [f"It was late without a rejection: {NOT_CLAIMED}"]),
    ({"triggered_at": DUE},
     ["It was a trigger: due when it was issued, emitted after a consumer stored it.",
      f"It was late without a rejection: {NOT_CLAIMED}"]),
])
def test_a_late_command_explains_a_late_event(changed, lines):
    assert emitted(11.2, **changed) == lines


@pytest.mark.parametrize(("seconds", "text"), [
    (-1, "0.000 s"), (9.9994, "9.999 s"), (11.24, "11.2 s"), (119.9, "119.9 s"), (120, "2 min"),
    (125.4, "2 min 5 s"), (3599.9, "1 h"), (7260, "2 h 1 min"), (86400 * 3 + 7200, "3 d 2 h"),
])
def test_spans_are_rounded_by_size(seconds, text):
    [line, *_] = last_event(last_emitted_at=after(seconds), last_confirmed_at=DUE + 10 * DAY)
    assert f"emitted {text} later" in line


def test_control_characters_are_replaced():
    nasty = {"job_type": "a\x1b[2Jb\nc", "rrule": "FREQ=DAILY\r\x9b", "timezone": "UTC\x07",
             "last_problem": "no\x1b]0;x\n" + "y" * 1000}
    lines = explain(replace(JOB, **REJECTED | nasty))
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 700
    assert "type       a?[2Jb?c" in lines


def test_name_and_description_are_in_the_table():
    table = parts(name="Reminder", description="Sent\nto customers.")[0]
    assert table[2:4] == ["name         Reminder", "description  Sent to customers."]


def test_a_job_without_a_schedule():
    unscheduled = {"rrule": None, "manual": True, "next_run_at": None, "wake_at": None}
    assert "schedule   none: it runs only when it is triggered" in parts(**unscheduled)[0]
    assert standing(**unscheduled) == ["It has no schedule: it runs when it is triggered."]


def test_the_stored_values_are_json():
    values = json.loads(json.dumps(stored_values(replace(JOB, every=timedelta(minutes=15), triggers=(DUE,)))))
    assert values.keys() == set(JobReport.__dataclass_fields__) - {"payload", "target"}
    assert values["id"] == JOB.id
    assert values["status"] == "pending"
    assert values["last_emitted_at"] == "2026-12-01T08:00:00.003000Z"
    assert values["every"] == 900
    assert values["triggers"] == ["2026-12-01T08:00:00.000000Z"]
    assert values["last_problem"] is None
