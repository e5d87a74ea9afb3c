"""Scenarios of a host, run on the real sidecar and on the one for tests.

Each scenario is a generator: it yields messages to publish, as (routing key, body), and `After(n)` to go on
once n of its ScheduleDue have been emitted, or `After(n, m)` once also m of its jobs have had a ScheduleFinished.
Every instant depends on `t`, some seconds after the start, so that both emit exactly the same. Actions after
`t` follow a fixed beat: a machine that is never late by a whole beat produces the same results as one that
is never late.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.client import job_id
from scheduler.domain.jobs.emission import event_id

DAY = timedelta(days=1)


@dataclass(frozen=True)
class After:
    """Continue after this number of emitted events, and of jobs with a finished run."""

    events: int
    finished: int = 0


Steps = Iterator[tuple[str, Any] | After]


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def request(name: str, number: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:
    fields = {key: iso(value) if isinstance(value, datetime) else value for key, value in fields.items()}
    body = {"id": str(job_id(name, number)), "job_type": f"test.{name}", "payload": {"n": 1.10}}
    return "request", body | fields


def order(kind: str, name: str, number: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:
    fields = {key: iso(value) if isinstance(value, datetime) else value for key, value in fields.items()}
    return kind, {"id": str(job_id(name, number))} | fields


def result(
    name: str, number: int, due_at: datetime, attempt: int, status: str, **fields: Any
) -> tuple[str, dict[str, Any]]:
    about = {"event_id": event_id(str(job_id(name, number)), due_at), "attempt": attempt, "status": status}
    return "result", about | fields


def one_shots(t: datetime, _: int) -> Steps:
    yield request("one_shots", 0, run_at=t)
    yield request("one_shots", 1, run_at=t - 3 * DAY)
    yield request("one_shots", 2, run_at=t - 3 * DAY, on_missed="skip")
    yield request("one_shots", 3, run_at=t - 3 * DAY, max_lateness=60)
    yield request("one_shots", 4, run_at="2026-01-01T09:00:00", timezone="Europe/Berlin")


def counted(t: datetime, beat: int) -> Steps:
    yield request("counted", 0, run_at=t, rrule=f"FREQ=SECONDLY;INTERVAL={beat};COUNT=3")
    yield request("counted", 1, run_at=t, every=2 * beat, max_lateness=30)
    yield After(5)
    yield order("cancel", "counted", 1)


def downtime(t: datetime, _: int) -> Steps:
    past = t - 10 * DAY - timedelta(hours=1)
    for number, policy in enumerate(("latest", "all", "skip")):
        yield request("downtime", number, run_at=past, rrule="FREQ=DAILY", on_missed=policy)
        yield request("downtime", number + 3, run_at=past, rrule="FREQ=DAILY;COUNT=4", on_missed=policy)
        yield request("downtime", number + 6, run_at=past, every="P1D", on_missed=policy, max_lateness=7200)
        yield request("downtime", number + 9, run_at=past, every="P1D", on_missed=policy, max_lateness=60)


def long_downtime(t: datetime, _: int) -> Steps:
    past = t - timedelta(hours=6, seconds=70)
    yield request("long_downtime", 0, run_at=past, every="PT2M", on_missed="all")
    yield request("long_downtime", 1, run_at=past, every="PT2M", on_missed="latest")


def wall_clocks(t: datetime, _: int) -> Steps:
    del t
    yield request("wall_clocks", 0, cron="30 2 1 1 *", timezone="Asia/Kathmandu")
    gap = "DTSTART;TZID=America/New_York:20300310T023000"
    yield request("wall_clocks", 1, rrule=f"{gap}\nRRULE:FREQ=DAILY;COUNT=3")
    yield request("wall_clocks", 2, cron="@yearly", timezone="Australia/Lord_Howe")
    yield request("wall_clocks", 3, run_at="2030-10-27T02:30:00", timezone="Europe/Berlin")
    yield request("wall_clocks", 4, run_at="2030-01-31T09:00:00", rrule="FREQ=MONTHLY;BYMONTHDAY=-1")


def replaced(t: datetime, _: int) -> Steps:
    yield request("replaced", 0, run_at=t + DAY, issued_at=t - DAY)
    yield request("replaced", 0, run_at=t, issued_at=t - DAY + timedelta(seconds=1))
    yield request("replaced", 0, run_at=t + DAY, issued_at=t - DAY)
    yield request("replaced", 0, run_at=t, issued_at=t - DAY + timedelta(seconds=1))
    yield request("replaced", 1, run_at=t - DAY)
    yield After(1)
    yield request("replaced", 1, run_at=t)


def requested_again(t: datetime, _: int) -> Steps:
    past = t - 3 * DAY - timedelta(hours=1)
    daily = {"run_at": past, "rrule": "FREQ=DAILY", "on_missed": "all"}
    yield request("requested_again", 0, run_at=past)
    yield request("requested_again", 1, **daily)
    yield request("requested_again", 2, every="P1D", run_at=past)
    yield After(6)
    yield request("requested_again", 0, run_at=past, payload={"n": 2}, timezone="UTC")
    yield request("requested_again", 1, **daily, payload={"n": 2})
    yield request("requested_again", 1, **daily | {"rrule": "FREQ=DAILY;INTERVAL=2"})
    yield request("requested_again", 2, every=86400, run_at=past, on_missed="skip")
    yield request("requested_again", 0, run_at=t)
    yield order("trigger", "requested_again", 0, issued_at=t + timedelta(days=40))


def cancelled(t: datetime, _: int) -> Steps:
    yield order("cancel", "cancelled", 0, issued_at=t - timedelta(hours=1))
    yield request("cancelled", 0, run_at=t, issued_at=t - timedelta(hours=2))
    yield request("cancelled", 1, run_at=t, issued_at=t - timedelta(hours=2))
    yield order("cancel", "cancelled", 1, issued_at=t - timedelta(hours=1))
    yield order("cancel", "cancelled", 1, issued_at=t - timedelta(hours=1))
    yield order("cancel", "cancelled", 1)
    yield order("trigger", "cancelled", 1)
    yield request("cancelled", 2, run_at=t)
    yield order("cancel", "cancelled", 2, issued_at=t - 9 * DAY)
    yield order("cancel", "cancelled", 3)


def paused(t: datetime, beat: int) -> Steps:
    yield request("paused", 0, run_at=t, rrule=f"FREQ=SECONDLY;INTERVAL={2 * beat};COUNT=3")
    yield request("paused", 1, run_at=t + timedelta(seconds=2.5 * beat))
    yield After(1)
    yield order("pause", "paused", 0)
    yield After(2)
    yield order("resume", "paused", 0)


def paused_and_skipped(t: datetime, beat: int) -> Steps:
    rrule = f"FREQ=SECONDLY;INTERVAL={2 * beat};COUNT=3"
    yield request("paused_and_skipped", 0, run_at=t, rrule=rrule, on_missed="skip")
    yield request("paused_and_skipped", 1, run_at=t + timedelta(seconds=2.5 * beat))
    yield order("pause", "paused_and_skipped", 0)
    yield order("pause", "paused_and_skipped", 2)
    yield order("resume", "paused_and_skipped", 3)
    yield After(1)
    yield order("resume", "paused_and_skipped", 0)


def triggered(t: datetime, _: int) -> Steps:
    early = t - timedelta(minutes=1)
    yield request("triggered", 0, run_at=t + DAY, rrule="FREQ=DAILY", issued_at=t - DAY)
    yield order("trigger", "triggered", 0, issued_at=early)
    yield After(1)
    yield order("trigger", "triggered", 0, issued_at=early)
    yield order("trigger", "triggered", 0, issued_at=early + timedelta(seconds=1))
    yield order("trigger", "triggered", 1, issued_at=early)
    yield request("triggered", 2, run_at=t - DAY, issued_at=t - DAY)
    yield After(3)
    yield order("trigger", "triggered", 2, issued_at=early)


def rejected(t: datetime, _: int) -> Steps:
    yield request("rejected", 0, rule="FREQ=DAILY", run_at=t)
    yield request("rejected", 1)
    yield request("rejected", 2, run_at=t, rrule="FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30")
    yield request("rejected", 3, cron="61 * * * *", timezone="Mars/Olympus", every=5)
    yield request("rejected", 4, run_at=t, payload=[1], max_lateness=-1, on_missed="never")
    yield "cancel", {"id": "invoice-42"}
    yield "pause", b"not json"
    yield "trigger", b'{"id": 1, "id": 2}'


def attempts(t: datetime, _: int) -> Steps:
    due = t - DAY
    yield request("attempts", 0, run_at=due, run={"backoff": [0], "max_attempts": 2})
    yield After(1)
    yield result("attempts", 0, due, 1, "running", worker="w", heartbeat=3600)
    yield result("attempts", 0, due, 1, "failed", error="no")
    yield After(2)
    yield result("attempts", 0, due, 1, "failed", error="not at all")
    yield result("attempts", 0, due, 2, "running")
    yield result("attempts", 0, due, 2, "failed", error="no", retry=False)
    yield After(2, 1)
    yield "retry", {"event_id": event_id(str(job_id("attempts", 0)), due)}
    yield After(3)
    yield result("attempts", 0, due, 3, "snoozed", retry_in=0)
    yield After(4)
    yield order("cancel", "attempts", 0)
    yield result("attempts", 0, due, 4, "failed")
    yield result("attempts", 0, due, 4, "succeeded", output={"n": 1.10}, worker="w")
    yield result("attempts", 0, due, 4, "succeeded", output={"n": 1.10}, worker="w")
    yield "retry", {"event_id": event_id(str(job_id("attempts", 0)), due)}
    yield "retry", {"event_id": str(job_id("nobody's run"))}
    yield "result", {"event_id": str(job_id("nobody's run")), "attempt": 0, "status": "snoozed"}
    yield result("attempts", 0, due, 5, "snoozed")


def overlapping(t: datetime, _: int) -> Steps:
    past = t - 3 * DAY
    daily = {"run_at": past, "rrule": "FREQ=DAILY;COUNT=3", "on_missed": "all"}
    yield request("overlapping", 0, **daily, run={"overlap": "skip"})
    yield After(1)
    yield request("overlapping", 1, **daily, run={"overlap": "wait"})
    for number in range(3):
        yield After(2 + number)
        yield result("overlapping", 1, past + number * DAY, 1, "succeeded", output=number)
    yield After(4, 1)
    yield request("overlapping", 2, **daily, run={"overlap": "allow"})
    yield After(7, 1)
    yield request("overlapping", 3, **daily, run={"overlap": "wait", "max_running": 2})
    yield After(9, 1)
    yield result("overlapping", 3, past + DAY, 1, "succeeded")
    yield After(10, 2)


def unscheduled(t: datetime, _: int) -> Steps:
    early = t - 2 * DAY
    yield request("unscheduled", 0, manual=True, issued_at=early)
    yield order("trigger", "unscheduled", 0, issued_at=early + DAY)
    yield After(1)
    yield request("unscheduled", 0, manual=True, issued_at=early + DAY, payload={"n": 2})
    yield order("trigger", "unscheduled", 0, issued_at=early + 1.5 * DAY)
    yield After(2)
    yield request("unscheduled", 0, manual=True, cron="@daily")
    yield request("unscheduled", 1, run_at=early, issued_at=early, paused=True, description="Later")
    yield request("unscheduled", 1, run_at=early, issued_at=early + DAY)
    yield order("trigger", "unscheduled", 1, issued_at=early + 1.5 * DAY)
    yield request("unscheduled", 1, run_at=early, issued_at=early - DAY, paused=False)
    yield After(2)
    yield order("resume", "unscheduled", 1)
    yield After(4)
    yield request("unscheduled", 2, run_at=early, run={"overlap": "allow", "max_running": 2})


def given_up(t: datetime, _: int) -> Steps:
    due = t - DAY
    event = {"event_id": event_id(str(job_id("given_up", 0)), due)}
    yield request("given_up", 0, run_at=due, run={"backoff": [0], "max_attempts": 2})
    yield After(1)
    yield result("given_up", 0, due, 2, "failed", error="never made")
    yield result("given_up", 0, due, 1, "failed", error="no", retry_in=0, output=[1])
    yield After(2)
    yield result("given_up", 0, due, 2, "failed", error="no")
    yield After(2, 1)
    yield "retry", event | {"issued_at": iso(t - DAY)}
    yield After(3)
    yield result("given_up", 0, due, 3, "failed", error="no", retry=False)
    yield "retry", event | {"issued_at": iso(t - DAY)}
    yield "retry", event | {"issued_at": iso(t - 2 * DAY)}
    yield result("given_up", 0, due, 1, "succeeded", output={"late": True})
    yield result("given_up", 0, due, 3, "succeeded")
    yield "retry", event


def early_results(t: datetime, _: int) -> Steps:
    for number, said in enumerate(("succeeded", "failed", "running")):
        yield result("early_results", number, t, 1, said, error=f"{number}")
        yield result("early_results", number, t, 1, said, error=f"{number}")
    yield result("early_results", 1, t, 1, "snoozed", retry_in=0)
    yield result("early_results", 2, t, 9, "failed")
    for number in range(3):
        yield request("early_results", number, run_at=t, run={"max_attempts": 1})
    yield After(3, 2)
    yield result("early_results", 2, t, 1, "snoozed", retry_in=0)
    yield After(4, 2)
    yield result("early_results", 2, t, 2, "succeeded")
    yield After(4, 3)


def silent(t: datetime, _: int) -> Steps:
    due = t - DAY
    yield request("silent", 0, run_at=due, run={"timeout": 1, "backoff": [0], "max_attempts": 2})
    yield request("silent", 1, run_at=due, run={"backoff": "fixed", "delay": 0, "max_attempts": 1})
    yield After(2)
    yield result("silent", 0, due, 1, "running", worker="slow", progress=0.5)
    yield After(3)
    yield result("silent", 0, due, 1, "running")
    yield result("silent", 0, due, 2, "running", heartbeat=3600)
    yield result("silent", 1, due, 1, "running", worker="silent", heartbeat=1)
    yield After(3, 2)
    yield result("silent", 1, due, 1, "failed", error="after it was lost")


def cancelled_runs(t: datetime, _: int) -> Steps:
    due = t - DAY
    for number in range(3):
        yield request("cancelled_runs", number, run_at=due, run={"backoff": [0]})
    yield After(3)
    yield result("cancelled_runs", 0, due, 1, "running", worker="w")
    for number in range(2):
        yield order("cancel", "cancelled_runs", number)
    yield order("pause", "cancelled_runs", 2)
    yield result("cancelled_runs", 2, due, 1, "failed")
    yield After(4, 2)
    yield result("cancelled_runs", 0, due, 1, "failed")
    yield "retry", {"event_id": event_id(str(job_id("cancelled_runs", 1)), due)}
    yield After(5, 2)
    yield result("cancelled_runs", 1, due, 2, "succeeded", output=None)
    # A retried run is unchanged, regardless of changes to its job.
    yield request("cancelled_runs", 2, run_at=t + DAY, payload={"n": 2}, run={"max_attempts": 9})
    yield result("cancelled_runs", 2, due, 2, "failed", retry_in=0)
    yield After(6, 2)
    yield result("cancelled_runs", 2, due, 3, "succeeded", output="x" * 70_000, error="e" * 5000)
    yield After(6, 3)


def cancelled_again(t: datetime, _: int) -> Steps:
    due, asked = t - DAY, t - timedelta(hours=1)
    yield request("cancelled_again", 0, run_at=due, issued_at=due, run={})
    yield After(1)
    yield order("cancel", "cancelled_again", 0, issued_at=asked)
    yield After(1, 1)
    yield "retry", {"event_id": event_id(str(job_id("cancelled_again", 0)), due)}
    yield After(2, 1)
    yield order("cancel", "cancelled_again", 0, issued_at=asked)
    yield order("cancel", "cancelled_again", 0, issued_at=asked - DAY)
    yield result("cancelled_again", 0, due, 2, "running", worker="w")
    yield order("cancel", "cancelled_again", 0)
    yield order("cancel", "cancelled_again", 0)


# First those whose first messages must be there before `t`.
SCENARIOS = (
    early_results, paused_and_skipped, cancelled, replaced, paused, counted, triggered, one_shots, downtime,
    long_downtime, wall_clocks, rejected, attempts, overlapping, given_up, silent, cancelled_runs,
    cancelled_again, requested_again, unscheduled,
)
