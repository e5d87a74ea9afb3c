"""The adversary's model and rules: each rule fails on a history that breaks it, and on no other."""

from uuid import uuid4

import pytest

import torture.__main__
from torture import model, shrink
from torture.books import Books
from torture.checker import judge
from torture.families_runs import tracked
from torture.generator import Draw, steps
from torture.history import History, instant
from torture.releases import ROOT
from torture.themes import THEMES, draw

T0 = 1_800_000_000.0


class Story:
    """A history written by hand."""

    def __init__(self, **plan):
        self.history = History()
        self.history.began = T0
        self.plan = {"theme": "t", "seed": 1, "length": 30.0, "fleet": {"consumer": 1, "producer": 1},
                     "groups": [], "faults": [], **plan}

    def request(self, at=0.0, *, behaviour=None, do="request", expect="ok", job=None, **body):
        job = job or str(uuid4())
        cid = str(uuid4())
        self.add("sent", at, cid=cid, do=do, job=job, group=0, family="oneshots", expect=expect, first=T0 + at,
                 confirmed=T0 + at, publishes=1, payload="p", behaviour=behaviour,
                 body={"job_type": "torture", **body})
        self.add("reply", at + 0.1, to=cid, type="ScheduleAccepted", body={})
        return job

    def due(self, job, due_at, at=None, attempt=None, **more):
        at = due_at + 0.01 if at is None else at
        event = f"{job}/{due_at}"
        self.add("due", at, **{
            "event_id": event, "job_id": job, "job_type": "torture", "due_at": instant(T0 + due_at),
            "emitted_at": instant(T0 + at), "occurrence": 1, "missed": 0, "tenant": None, "priority": None,
            "payload": "p", "run": {"attempt": attempt} if attempt else None, "message_id": event,
            "type": "ScheduleDue", "app_id": "scheduler", "traceparent": None,
            "correlation_id": next(r["cid"] for r in self.history.of("sent") if r["job"] == job)} | more)
        return event

    def add(self, what, at, **fields):
        self.history.records.append({"what": what, "t": T0 + at, **fields})

    def ticks(self, until):
        """Let both servers answer each probe up to a time."""
        for n in range(until * 4):
            self.add("tick", n / 4, late=0.0, database=0.1, broker=0.1)

    def rules(self):
        self.add("healed", 30)
        self.add("settled", 31)
        return {violation.rule for violation in judge(self.plan, self.history, ROOT)}


def test_an_event_in_time_breaks_no_rule():
    story = Story()
    story.due(story.request(run_at=instant(T0 + 2)), 2)
    assert story.rules() == set()


def test_an_event_that_never_came_is_lost():
    story = Story()
    story.request(run_at=instant(T0 + 2))
    assert story.rules() == {"lost"}


def test_an_event_before_its_time_is_early():
    story = Story()
    story.due(story.request(run_at=instant(T0 + 2)), 2, at=1.9)
    assert story.rules() == {"early"}


def test_an_instant_that_nobody_asked_for_is_unexpected():
    story = Story()
    job = story.request(run_at=instant(T0 + 2))
    story.due(job, 2)
    story.due(job, 3, occurrence=2)
    assert "unexpected" in story.rules()


def test_an_event_after_an_answered_cancel():
    story = Story()
    job = story.request(run_at=instant(T0 + 5))
    story.request(1, do="cancel", job=job)
    story.due(job, 5)
    assert "after cancel" in story.rules()


def test_a_command_of_another_tenant_that_was_accepted():
    story = Story()
    job = story.request(run_at=instant(T0 + 5))
    story.due(job, 5)
    story.request(1, do="cancel", job=job, expect="reject")
    assert story.rules() == {"tenancy"}


def test_an_older_request_after_an_answered_cancel():
    for status, rules in (("superseded", set()), ("scheduled", {"after cancel"})):
        story = Story()
        job = story.request(1, do="cancel", issued_at=instant(T0 + 1))
        story.request(90, job=job, run_at=instant(T0 + 300), issued_at=instant(T0))
        story.history.records[-1]["body"] = {"status": status}
        assert story.rules() == rules


@pytest.mark.parametrize(("expect", "rules"), [("ok", set()), ("foreign", {"tenancy"})])
def test_a_run_is_cancelled_only_by_its_tenant(expect, rules):
    story = Story()
    job = story.request(run_at=instant(T0 + 1), run={}, behaviour=[{"o": "ok"}])
    event = story.due(job, 1, attempt=1)
    story.request(2, do="cancel", job=job, expect=expect)
    story.add("finished", 2, body={"event_id": event, "job_id": job, "job_type": "torture", "status": "cancelled",
                                   "due_at": instant(T0 + 1)})
    assert story.rules() == rules


@pytest.mark.parametrize(("gap", "rules"), [(3, set()), (25, {"held"})])
def test_a_waiting_job_goes_on_when_its_run_has_ended(gap, rules):
    story = Story()
    job = story.request(run_at=instant(T0 + 1), every=1, run={"overlap": "wait"}, behaviour=[{"o": "ok"}])
    for due_at in (1, 1 + gap):
        event = story.due(job, due_at, attempt=1)
        story.add("finished", due_at + 0.1, body={"event_id": event, "job_id": job, "job_type": "torture",
                                                  "status": "succeeded", "due_at": instant(T0 + due_at)})
    story.ticks(1 + gap)
    assert story.rules() & {"held"} == rules


def snoozed(story, times):
    """Write a run that comes at these times and is snoozed each time."""
    job = story.request(run_at=instant(T0 + 1), run={}, behaviour=[{"o": "snooze", "in": 0}])
    for attempt, at in enumerate(times, 1):
        event = story.due(job, 1, at=at, attempt=attempt)
        story.add("report", at, event_id=event, attempt=attempt, status="snoozed", first=T0 + at,
                  confirmed=T0 + at)
    return job


@pytest.mark.parametrize(("times", "rules"), [
    ([2, 5, 10, 15, 20, 25, 30], {"lost"}), ([2, 5, 25, 30], {"lost", "stall"}), ([2, 5, 10], {"lost", "stall"})])
def test_a_snoozed_run_goes_on(times, rules):
    story = Story()
    snoozed(story, times)
    story.ticks(31)
    story.history.records.sort(key=lambda record: record["t"])
    assert story.rules() == rules


def test_a_run_that_is_snoozed_again_is_not_stuck():
    story = Story()
    job = snoozed(story, [2, 3])
    assert Books(story.history).attempts([job]) == 2
    story.due(job, 1, at=3.1, attempt=2)
    assert Books(story.history).attempts([job]) == 2, "the broker delivered the same attempt twice"
    story.due(job, 1, at=4, attempt=3)
    assert Books(story.history).attempts([job]) == 3
    story.add("finished", 5, body={"event_id": f"{job}/1", "job_id": job, "status": "succeeded",
                                   "due_at": instant(T0 + 1)})
    assert Books(story.history).attempts([job]) == 0


def outbox(story, rows):
    """Write rows at once; the relay has published row n at the times in `rows[n]`."""
    for times in rows:
        job = story.request(1, run_at=instant(T0 + 1))
        sent = story.history.records[-2]
        sent["via"] = "outbox"
        story.due(job, 1, at=max(times, default=29))
        for at in times:
            story.add("relayed", at, cid=sent["cid"])
    story.ticks(31)
    story.history.records.sort(key=lambda record: record["t"])


@pytest.mark.parametrize(("rows", "rules"), [
    ([[2], [3], [4]], set()), ([[2], [3], [25]], {"stall"}), ([[2], [3], []], {"stall"}),
    ([[2, 3], [3]], {"outbox"})])
def test_the_relay_publishes_each_command_once_and_goes_on(rows, rules):
    story = Story()
    outbox(story, rows)
    assert story.rules() == rules


@pytest.mark.parametrize(("expect", "rules"), [("any", set()), ("ok", {"lost"})])
def test_an_outbox_row_that_no_broker_takes_owes_no_event(expect, rules):
    story = Story()
    story.request(1, expect=expect, run_at=instant(T0 + 2))
    story.history.records.pop()  # no reply: the relay kept the row
    story.history.records[-1]["via"] = "outbox"
    assert story.rules() & {"lost"} == rules


@pytest.mark.parametrize(("fault", "times", "rules"), [
    ({"kind": "slow", "link": "outbox-*/broker", "delay": 0.2}, 2, set()),
    ({"kind": "slow", "link": "outbox-*/broker", "delay": 0.2}, 3, {"outbox"}),
    ({"kind": "kill", "who": "outbox-1"}, 2, set()), ({"kind": "kill", "who": "producer-1"}, 2, {"outbox"})])
def test_the_relay_publishes_again_only_after_a_fault(fault, times, rules):
    story = Story()
    story.add("fault", 1, ended=T0 + 20, **fault)
    outbox(story, [[2 + n for n in range(times)]])
    assert story.rules() == rules


def test_missed_instants_are_reported_once_and_counted():
    story = Story()
    job = story.request(run_at=instant(T0 + 1), rrule="FREQ=SECONDLY;COUNT=4", on_missed="latest")
    gone = [instant(T0 + 1), instant(T0 + 2)]
    story.add("missed", 3, body={"job_id": job, "missed": gone, "missed_count": 2})
    story.due(job, 3, missed=2)
    story.due(job, 4, occurrence=2)
    assert story.rules() == set()
    story.add("missed", 3, body={"job_id": job, "missed": gone[:1], "missed_count": 1})
    assert story.rules() == {"missed"}


def test_the_same_occurrence_again_after_the_same_request():
    story = Story()
    fields = {"run_at": instant(T0 + 1)}
    job = story.request(**fields)
    story.due(job, 1)
    story.request(20, job=job, **fields)
    story.history.records[-2]["settled"] = True
    story.due(job, 1, at=20.2)
    assert "emitted again" in story.rules()


def test_a_run_that_ends_otherwise_than_reported():
    story = Story()
    job = story.request(run_at=instant(T0 + 1), run={"max_attempts": 1}, behaviour=[{"o": "ok"}])
    event = story.due(job, 1, attempt=1)
    story.add("report", 1.1, event_id=event, attempt=1, status="succeeded", first=T0 + 1.1, confirmed=T0 + 1.2)
    story.add("finished", 2, body={"event_id": event, "job_id": job, "job_type": "torture", "status": "dead",
                                   "due_at": instant(T0 + 1)})
    assert "outcome" in story.rules()


def test_an_attempt_that_is_lost_though_its_worker_reported():
    story = Story()
    job = story.request(run_at=instant(T0 + 1), run={}, behaviour=[{"o": "ok"}])
    event = story.due(job, 1, attempt=1)
    for second in (1, 2, 3):
        story.add("report", second, event_id=event, attempt=1, status="running", heartbeat=3, first=T0 + second,
                  confirmed=T0 + second)
    story.add("report", 4, event_id=event, attempt=1, status="succeeded", first=T0 + 4, confirmed=T0 + 4)
    attempts = [{"attempt": 1, "outcome": "lost"}]
    story.add("exported", 30, event_id=event, job=job, status="succeeded", attempts=attempts)
    assert "healthy lost" in story.rules()


@pytest.mark.parametrize(("mebibytes", "rules"), [(200, set()), (300, {"memory"})])
def test_a_process_above_its_limit(mebibytes, rules):
    story = Story()
    story.add("rss", 1, member="producer-1", bytes=mebibytes * 2**20)
    assert story.rules() == rules


def test_a_process_that_connects_again_and_again():
    story = Story()
    for n in range(30):
        story.add("accept", 5 + n / 10, link="producer-1/broker")
    assert story.rules() == {"connection loop"}


def test_a_stall_counts_only_while_the_servers_answer():
    for broker, rules in ((0.1, {"stall"}), (9.0, set())):
        story = Story()
        job = story.request(every=1, run_at=instant(T0 + 1))
        story.history.records[0]["family"] = "canary"
        story.history.records[0]["body"]["job_type"] = "canary.emit"
        for n in range(1, 31):
            if not 5 < n < 25:
                story.due(job, n, occurrence=n if n < 6 else n - 19, missed=19 if n == 25 else 0,
                          job_type="canary.emit")
        gone = [instant(T0 + n) for n in range(6, 25)]
        story.add("missed", 25, body={"job_id": job, "missed": gone, "missed_count": 19})
        for n in range(120):
            story.add("tick", n / 4, late=0.0, database=0.1, broker=broker)
        story.history.records.sort(key=lambda record: record["t"])
        assert story.rules() - {"properties"} == rules


@pytest.mark.parametrize("name", THEMES)
def test_a_plan_is_the_same_for_the_same_seed_and_fits_a_file(name):
    plan = draw(name, 7)
    assert plan == draw(name, 7)
    assert steps(plan) == steps(draw(name, 7))
    assert torture.__main__.KEPT.name == ".torture"


def test_a_smaller_plan_draws_the_same_jobs():
    plan = draw("calm", 3)
    whole = {str(step["body"]) for step in steps(plan) if step["family"] == "tracked"}
    for _, smaller in shrink.candidates(plan):
        drawn = {str(step["body"]) for step in steps(smaller) if step["family"] == "tracked"}
        assert drawn <= whole


def test_shrinking_keeps_what_fails():
    plan = draw("calm", 3)

    def attack(smaller, *, quiet):
        assert quiet
        failing = any(group["family"] == "lives" for group in smaller["groups"])
        return judge({**smaller}, broken().history, ROOT) if failing else []

    def broken():
        story = Story()
        story.request(run_at=instant(T0 + 2))
        story.rules()
        return story

    smallest = shrink.shrink(plan, judge(plan, broken().history, ROOT), attack, 20, lambda _: None)
    assert [(group["family"], group.get("count")) for group in smallest["groups"]] == [("lives", 1)]


@pytest.mark.parametrize(("behaviour", "attempts", "end"), [
    ([{"o": "ok"}], 1, ("succeeded", 1)), ([{"o": "fail"}], 3, ("dead", 3)),
    ([{"o": "snooze"}, {"o": "fail"}, {"o": "ok"}], 2, ("succeeded", 3)), ([{"o": "giveup"}], 5, ("dead", 1))])
def test_how_a_run_ends(behaviour, attempts, end):
    assert model.outcome(behaviour, attempts) == end


def test_a_family_draws_every_policy():
    plan = {"seed": 1, "length": 30.0, "groups": [{"family": "tracked", "count": 300}]}
    drawn = [step["body"]["run"] for step in tracked(Draw(plan, 0)) if step["do"] == "request"]
    assert {run["overlap"] for run in drawn} == {"allow", "skip", "wait"}
