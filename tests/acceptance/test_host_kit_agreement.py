"""The sidecar for tests and the real one agree on every shared scenario."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from shared_scenarios import SCENARIOS, After, request
from support import until

from scheduler.client import job_id
from scheduler.testing import Sidecar

OWNER = {str(job_id(each.__name__, number)): each.__name__ for each in SCENARIOS for number in range(20)}
TIMELESS = {"emitted_at"}
END = timedelta(seconds=5)


class Story:
    """What was answered and emitted in one scenario."""

    def __init__(self):
        self.answers, self.due, self.missed = [], [], []

    def told(self):
        """The events of one job come in order; those of several jobs may interleave."""
        by_job = defaultdict(list)
        for event in self.due + self.missed:
            known = {key: value for key, value in event.items() if key not in TIMELESS}
            by_job[event["job_id"], "due_at" in event].append(known)
        return {"answers": self.answers, "events": dict(by_job)}


def in_process(scenario, start, t):
    """Run a scenario on the sidecar for tests, in no time."""
    sidecar, story = Sidecar(start), Story()

    def collect():
        story.due += [json.loads(each.body) for each in sidecar.take("due")]
        story.missed += [json.loads(each.body) for each in sidecar.take("missed")]

    for step in scenario(t):
        if isinstance(step, After):
            while collect() or len(story.due) < step.events:
                sidecar.advance(milliseconds=50)
        else:
            key, body = step
            story.answers.append(json.loads(sidecar.publish(key, body).model_dump_json()))
    sidecar.advance_to(t + END)
    collect()
    return story


class Real:
    """All scenarios at once on the real sidecar."""

    def __init__(self, host, t):
        self.host, self.t = host, t
        self.stories = defaultdict(Story)
        self.reply_to = host.channel.queue_declare("", exclusive=True).method.queue
        self.missed = host.listen("schedule.events", "missed")
        self.done = False

    def run(self):
        running = {scenario.__name__: (scenario(self.t), None) for scenario in SCENARIOS}
        until(lambda: self.turn(running), "every scenario's end")
        key, body = request("the end", run_at=self.t + END)
        self.publish(key, body)
        until(lambda: self.collect() or self.done, "the event after all others")
        self.collect()

    def turn(self, running):
        """Take each scenario as far as it goes for now."""
        self.collect()
        for name, (steps, waiting) in list(running.items()):
            if waiting is not None and len(self.stories[name].due) < waiting.events:
                continue
            running[name] = (steps, None)
            for step in steps:
                if isinstance(step, After):
                    running[name] = (steps, step)
                    break
                self.stories[name].answers.append(self.publish(*step))
            else:
                del running[name]
        return not running

    def publish(self, key, body):
        self.host.publish(key, body, reply_to=self.reply_to, correlation_id="x")
        return json.loads(self.host.get(self.reply_to)[2])

    def collect(self):
        for event in map(json.loads, self.host.drain("mainapp_due")):
            if event["job_id"] in OWNER:
                self.stories[OWNER[event["job_id"]]].due.append(event)
            else:
                self.done = True
        for event in map(json.loads, self.host.drain(self.missed)):
            self.stories[OWNER[event["job_id"]]].missed.append(event)


@pytest.fixture
def twice(sidecar, host):
    """Every scenario's story, told by both."""
    sidecar.up()
    start = datetime.now(UTC)
    t = start.replace(microsecond=0) + timedelta(seconds=6)
    real = Real(host, t)
    real.run()
    return [(each.__name__, in_process(each, start, t), real.stories[each.__name__]) for each in SCENARIOS]


def test_the_test_kit_and_the_real_sidecar_tell_the_same_story(twice):
    for name, kit, real in twice:
        assert kit.told() == real.told(), name
        assert len(kit.due) == len(real.due), name
    assert sum(len(kit.due) for _, kit, _ in twice) > 100
