"""The sidecar for tests and the real one agree on every shared scenario."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from shared_scenarios import SCENARIOS, After, request
from support import DEADLINE, until

from scheduler.client import job_id
from scheduler.testing import Sidecar

OWNER = {
    str(job_id(scenario.__name__, number)): scenario.__name__ for scenario in SCENARIOS for number in range(20)
}
TIMELESS = {"emitted_at", "started_at", "finished_at", "deadline"}
LEAD, END = 6, 5  # beats before and after `t`
BEATS = (1, 2, 4, 8)  # seconds


class Story:
    """The replies and events of one scenario."""

    def __init__(self):
        self.answers, self.due, self.missed = [], [], []
        self.finished = {}  # the last one of each job: an overtaken one may be omitted

    def answered(self, key, answer):
        """A retry is answered with its time, which is now."""
        self.answers.append(answer | ({"next_run_at": None} if key == "retry" and "next_run_at" in answer else {}))

    def reached(self, step):
        return len(self.due) >= step.events and len(self.finished) >= step.finished

    def told(self):
        """Events of one job are in order; those from several jobs may interleave."""
        by_job = defaultdict(list)
        for event in self.due + self.missed:
            by_job[event["job_id"], "due_at" in event].append(timeless(event))
        finished = {job: timeless(event) for job, event in self.finished.items()}
        return {"answers": self.answers, "events": dict(by_job), "finished": finished}


def timeless(event):
    return {
        key: timeless(value) if key == "run" else value for key, value in event.items() if key not in TIMELESS
    }


def in_process(scenario, start, t, beat):
    """Run a scenario on the sidecar for tests, in no time."""
    sidecar, story = Sidecar(start), Story()

    def collect():
        story.due += [json.loads(each.body) for each in sidecar.take("due")]
        story.missed += [json.loads(each.body) for each in sidecar.take("missed")]
        for event in sidecar.take("finished"):
            told = json.loads(event.body)
            story.finished[told["job_id"]] = told

    for step in scenario(t, beat):
        if isinstance(step, After):
            while collect() or not story.reached(step):
                sidecar.advance(milliseconds=50)
        else:
            key, body = step
            story.answered(key, json.loads(sidecar.publish(key, body).model_dump_json()))
    sidecar.advance_to(t + timedelta(seconds=END * beat))
    collect()
    return story


class Real:
    """All scenarios at once on the real sidecar."""

    def __init__(self, host, t, beat):
        self.host, self.t, self.beat = host, t, beat
        self.latest = timedelta(0)  # delay of an event after `t`, or of the host's reaction to it
        self.stories = defaultdict(Story)
        self.reply_to = host.channel.queue_declare("", exclusive=True).method.queue
        self.missed = host.listen("schedule.events", "missed")
        self.finished = host.listen("schedule.events", "finished")
        self.done = False

    def run(self):
        running = {scenario.__name__: (scenario(self.t, self.beat), None) for scenario in SCENARIOS}
        self.turn(running)
        self.note(self.t)  # what comes first must be there before `t`
        until(lambda: self.turn(running), "every scenario's end", within=2 * DEADLINE)
        key, body = request("the end", run_at=self.t + timedelta(seconds=END * self.beat))
        self.publish(key, body)
        until(lambda: self.collect() or self.done, "the event after all others")
        self.collect()

    def turn(self, running):
        """Take each scenario as far as it goes for now."""
        self.collect()
        for name, (steps, waiting) in list(running.items()):
            if waiting is not None and not self.stories[name].reached(waiting):
                continue
            running[name] = (steps, None)
            for step in steps:
                if isinstance(step, After):
                    running[name] = (steps, step)
                    break
                self.stories[name].answered(step[0], self.publish(*step))
                if waiting is not None:
                    self.note(max(datetime.fromisoformat(event["due_at"]) for event in self.stories[name].due))
            else:
                del running[name]
        return not running

    def note(self, due):
        """Record the delay of actions at that moment; before `t` there is none."""
        if due >= self.t:
            self.latest = max(self.latest, datetime.now(UTC) - due)

    def publish(self, key, body):
        self.host.publish(key, body, reply_to=self.reply_to, correlation_id="x")
        return json.loads(self.host.get(self.reply_to)[2])

    def collect(self):
        for event in map(json.loads, self.host.drain("mainapp_due")):
            self.note(datetime.fromisoformat(event["due_at"]))
            if event["job_id"] in OWNER:
                self.stories[OWNER[event["job_id"]]].due.append(event)
            else:
                self.done = True
        for event in map(json.loads, self.host.drain(self.missed)):
            self.stories[OWNER[event["job_id"]]].missed.append(event)
        for event in map(json.loads, self.host.drain(self.finished)):
            self.stories[OWNER[event["job_id"]]].finished[event["job_id"]] = event


@pytest.fixture
def twice(sidecar, host):
    """Every scenario's story, told by both."""
    sidecar.up()
    for beat in BEATS:
        start = datetime.now(UTC)
        t = start.replace(microsecond=0) + timedelta(seconds=LEAD * beat)
        real = Real(host, t, beat)
        real.run()
        if real.latest < timedelta(seconds=0.9 * beat):  # the scenarios themselves have one half a beat late
            break
        # The machine is too busy for this beat: a late event reports others that were missed since.
        until(lambda: not sidecar.sql("SELECT 1 FROM jobs WHERE status = 'pending' AND wake_at <= now()"),
              "nothing more due")
        sidecar.sql("DELETE FROM jobs")
        sidecar.sql("DELETE FROM runs")
        host.drain("mainapp_due")
    return [
        (scenario.__name__, in_process(scenario, start, t, beat), real.stories[scenario.__name__])
        for scenario in SCENARIOS
    ]


def test_the_test_kit_agrees_with_the_real_sidecar(twice):
    for name, kit, real in twice:
        assert kit.told() == real.told(), name
        assert len(kit.due) == len(real.due), name
    assert sum(len(kit.due) for _, kit, _ in twice) > 100
