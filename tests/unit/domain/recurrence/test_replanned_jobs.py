"""Random changes of calendars and zones, pauses, outages: no occurrence is emitted or reported twice, or both."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from uuid import UUID

import pytest
from hypothesis import Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from recurrence_helpers import DEEP, EXAMPLES
from zone_support import zone_file

from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.jobs.adjusted import planner_of, report_skips
from scheduler.domain.jobs.emission import decide, reports, settle
from scheduler.domain.jobs.job import JobStatus, apply
from scheduler.domain.jobs.replan import replan_in_zone, replan_with_calendar
from scheduler.domain.message_parser import parse_command
from scheduler.domain.recurrence.adjustment_fields import read_calendar
from scheduler.domain.recurrence.schedule import to_instant, to_seconds
from scheduler.domain.recurrence.zone_data import ZoneData
from scheduler.domain.recurrence.zones import clock, clock_in

ZONE = "Etc/GMT+8"  # of the package: -8 hours, without daylight saving
JOB = str(UUID(int=7))
START = datetime(2026, 12, 14, 8, tzinfo=UTC)  # Monday at midnight there
DAYS = [date(2026, 12, 14) + timedelta(days=number) for number in range(21)]
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
COLLECTED = timedelta(seconds=10)
LAST = START + timedelta(days=21)
LONGEST = timedelta(days=75)  # more than calendar, window and jitter can delay an occurrence

RULES = (
    {"rrule": "FREQ=DAILY", "run_at": "2026-12-14T09:00:00"},
    {"rrule": "FREQ=DAILY;BYHOUR=9,20;BYMINUTE=0;BYSECOND=0", "run_at": "2026-12-14T09:00:00"},
    {"rrule": "FREQ=HOURLY;INTERVAL=5", "run_at": "2026-12-14T03:30:00"},
    {"rrule": "FREQ=HOURLY;INTERVAL=5;COUNT=40\nEXDATE:20261216T133000Z", "run_at": "2026-12-14T03:30:00"},
    {"every": "PT13H", "run_at": "2026-12-14T07:00:00-08:00"},
    {"cron": "0 6,18 * * *", "run_at": "2026-12-14T00:00:00"},
    {"run_at": "2026-12-17T22:00:00"},
    {"run_at": "2026-12-19T09:00:00-08:00"},
)
WINDOWS = (
    None, None, {"from": "09:00", "to": "18:00"}, {"from": "22:00", "to": "06:00"},
    {"from": "08:00", "to": "12:00", "days": ["MO", "SA"]},
)
calendars = st.fixed_dictionaries({
    "weekend": st.sampled_from(([], ["SA", "SU"], ["FR"], ["MO", "TU", "WE", "TH", "FR"])),
    "closed": st.lists(st.sampled_from(DAYS), max_size=6).map(lambda days: {str(day): "" for day in days}),
    "open": st.lists(st.sampled_from(DAYS), max_size=2).map(lambda days: {str(day): "" for day in days}),
})
requests = st.fixed_dictionaries({
    "rule": st.sampled_from(RULES), "window": st.sampled_from(WINDOWS),
    "on_closed": st.sampled_from(("skip", "next", "previous", "nearest", "next_in_month")),
    "jitter": st.sampled_from((None, None, 1800, 30_000)),
    "on_missed": st.sampled_from(("latest", "all", "skip")),
})


class Occurrences(RuleBasedStateMachine):
    """One job, and the events that a host would receive."""

    zones_change = True

    @initialize(request=requests, content=calendars)
    def store(self, request, content):
        self.now, self.clock, self.version = START, None, 1
        self.contents = {}
        self.calendar({})
        self.emitted, self.reported, self.emitted_walls = Counter(), Counter(), Counter()
        self.joined = set()  # a change moved them onto an instant at which another was emitted before
        fields = {"id": JOB, "job_type": "a", "timezone": ZONE, "calendar": "de", **request["rule"],
                  "on_closed": request["on_closed"], "on_missed": request["on_missed"]}
        fields |= {name: request[name] for name in ("window", "jitter") if request[name] is not None}
        note(fields)
        self.every = "every" in fields or fields["run_at"].endswith("-08:00")
        self.job = None
        self.send("request", **fields)
        self.change_calendar(content, planned=True)

    def send(self, kind, **fields):

        command = parse_command(kind, json.dumps(fields).encode(), max_payload_bytes=1000)
        self.job = apply(self.job, command, self.now, self.find).job

    def calendar(self, content):
        revision = len(self.contents) + 1
        self.contents[revision] = read_calendar(content, [])
        self.effective = EffectiveCalendar(self.contents[revision], revision, revision)

    def find(self, *_):
        return self.effective

    def former(self, _, revision):
        return self.contents[revision]

    def planner(self):
        return planner_of(self.job, self.job.definition.spec, self.effective, self.clock)

    # What a host sees

    def wall(self, nominal):
        local = self.clock or clock(ZONE)
        second, micro = to_seconds(nominal)
        return to_instant(second + local.offset(second), micro)

    def emit(self):
        emission = decide(self.job, self.now, self.clock, self.find, self.former)
        if emission.event_id is not None:
            nominal = emission.nominal_at or emission.due_at
            assert emission.due_at <= self.now
            self.emitted[nominal] += 1
            self.emitted_walls[self.wall(nominal)] += 1
        for missed in reports(emission):
            assert missed.count == len(missed.times) or missed.count > 100, missed
            self.reported.update(missed.times)
        self.job = settle(emission)

    def report(self):
        if self.job.calendar_revision != self.effective.revision:
            self.job = replace(self.job, skip_at=self.now + COLLECTED)
            return
        report = report_skips(self.job, self.planner(), self.now)
        self.reported.update(report.nominals)
        following = report.skip_at
        if following is not None and report.nominals and following > self.now:
            following = max(following, self.now + COLLECTED)
        finished = following is None and self.job.next_run_at is None
        self.job = replace(self.job, reported_until=report.reported_until, skip_at=following,
                           status=JobStatus.DONE if finished else self.job.status)

    def wake(self):
        """Do what is due next until `now`; return whether there was anything."""
        due = [(at, kind) for at, kind in ((self.job.wake_at, "emit"), (self.job.skip_at, "report"))
               if at is not None and at <= self.until]
        if self.job.status is not JobStatus.PENDING or not due:
            return False
        at, kind = min(due)
        self.now = max(self.now, at)
        getattr(self, kind)()
        return True

    def pass_time(self, until):
        self.until = until
        while self.wake():
            pass
        self.now = max(self.now, until)

    # What happens

    @rule(hours=st.integers(1, 60))
    def time_passes(self, hours):
        self.pass_time(min(self.now + hours * HOUR, LAST))

    @rule(hours=st.integers(1, 60))
    def outage(self, hours):
        self.now = min(self.now + hours * HOUR, LAST)

    @rule(content=calendars, planned=st.booleans())
    def change_calendar(self, content, planned):
        self.calendar(content)
        if planned:
            self.plan_again()

    @rule()
    def plan_again(self):
        if self.job.active and (self.job.next_run_at is None or self.job.next_run_at > self.now):
            self.job = self.finished(replan_with_calendar(self.job, self.find, self.now, self.former, self.clock))

    @staticmethod
    def finished(job):
        done = job.next_run_at is None and job.skip_at is None and not job.triggers
        return replace(job, status=JobStatus.DONE) if done else job

    @rule()
    def pause(self):
        if self.job.active:
            self.send("pause", id=JOB)

    @rule()
    def resume(self):
        if self.job.active:
            self.send("resume", id=JOB)

    @precondition(lambda self: self.zones_change)
    @rule(hours=st.sampled_from((-9, -8.5, -8, -7, -6, 3)))
    def change_zone(self, hours):
        if not self.job.active or (self.job.next_run_at is not None and self.job.next_run_at <= self.now):
            return
        self.version += 1
        data = ZoneData(f"2026{self.version}", "", {ZONE: zone_file(-8, (self.now - HOUR, hours))})
        new = clock_in(data, ZONE)
        old = self.clock or clock(ZONE)
        assert self.job.definition.spec.follows_clock
        self.job = self.finished(
            replan_in_zone(self.job, old, new, data.version, self.now, self.find, self.former))
        self.clock = new

    @invariant()
    def nothing_is_said_twice(self):
        if getattr(self, "job", None) is None:
            return
        said = self.emitted + self.reported
        assert max(said.values(), default=0) <= 1, [at for at, number in said.items() if number > 1]
        if not self.every:
            assert max(self.emitted_walls.values(), default=0) <= 1


class InOneZone(Occurrences):
    """The same without changes of the zone: at the end, each occurrence was emitted or reported."""

    zones_change = False

    @invariant()
    def some_join_emitted_events(self):
        if getattr(self, "job", None) is None:
            return
        planner = self.planner()
        for nominal in takewhile(lambda at: at < LAST, planner.schedule.since(START - timedelta(days=1))):
            planned = planner.planned_of(nominal)
            if planned != nominal and self.emitted[planned]:
                self.joined.add(nominal)

    def teardown(self):
        if getattr(self, "job", None) is None:
            return
        if self.job.status is JobStatus.PAUSED:
            self.send("resume", id=JOB)
        self.pass_time(self.now)
        self.plan_again()
        self.pass_time(LAST + LONGEST)
        self.nothing_is_said_twice()
        planner = self.planner()
        for nominal in takewhile(lambda at: at < LAST, planner.schedule.since(START - timedelta(days=1))):
            if not self.emitted[nominal] + self.reported[nominal]:
                assert nominal in self.joined, f"{nominal} is lost"


def examples(number):
    """Use the same examples each time, except in the deep run."""
    return settings(max_examples=number, stateful_step_count=25, deadline=None, derandomize=not DEEP,
                    database=None, phases=[Phase.generate])


def test_each_occurrence_is_emitted_or_reported_at_most_once():
    run_state_machine_as_test(Occurrences, settings=examples(EXAMPLES))


def test_without_changes_of_the_zone_none_is_lost():
    run_state_machine_as_test(InOneZone, settings=examples(EXAMPLES))


if DEEP:
    pytestmark = pytest.mark.deep
