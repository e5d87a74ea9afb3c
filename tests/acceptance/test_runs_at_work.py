"""Many jobs and many workers: each occurrence runs once, and never two at a time if that is forbidden."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta

import pytest
from support import DEADLINE, Host, iso, until, utc

from scheduler.client import Handlers, Runner

# A worker that takes one event, prints that it works, and then prints nothing more.
STUCK = """
import json, sys, time, pika
channel = pika.BlockingConnection(pika.URLParameters(sys.argv[1])).channel()
channel.confirm_delivery()
for method, _, body in channel.consume("mainapp_due"):
    event = json.loads(body)
    channel.basic_publish("schedule.commands", "result", json.dumps({
        "event_id": event["event_id"], "attempt": event["run"]["attempt"], "status": "running", "heartbeat": 1,
        "worker": "dies",
    }).encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)
    channel.basic_ack(method.delivery_tag)
    print("at work", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def staff(amqp_url):
    """Start `count` workers with separate connections, and stop them at the end."""
    running = []

    def start(count, work):
        for number in range(count):
            handlers = Handlers()
            handlers.on_due("test.job")(work)
            runner = Runner(amqp_url, handlers=handlers, workers=1, name=f"w{number}", heartbeat=DEADLINE)
            thread = threading.Thread(target=runner.run)
            thread.start()
            running.append((runner, thread))
        for runner, _ in running:
            assert runner.ready.wait(DEADLINE)

    yield start
    for runner, _ in running:
        runner.stop()
    for _, thread in running:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def history(sidecar):
    return sidecar.sql("SELECT job_id::text, due_at, attempt, status, worker FROM run_history")


def test_ten_workers_run_each_occurrence_once(sidecar, host, staff):
    sidecar.up(consumers=2, producers=2)
    missed = host.listen("schedule.events", "missed")
    done, at_work = Counter(), threading.Lock()

    def work(event):
        with at_work:
            done[str(event.job_id), event.due_at] += 1

    staff(10, work)
    start = utc(seconds=2).replace(microsecond=0)
    rule = {"rrule": "FREQ=SECONDLY;COUNT=4", "run_at": iso(start), "on_missed": "all"}  # minutes as seconds
    jobs = [host.request(**rule, run={"timeout": 3600}) for _ in range(100)]
    expected = {(job, start + timedelta(seconds=n)) for job in jobs for n in range(4)}
    until(lambda: len(history(sidecar)) >= len(expected), "the end of every run", within=3 * DEADLINE)
    assert done == dict.fromkeys(expected, 1)
    rows = history(sidecar)
    assert {(row["job_id"], row["due_at"]) for row in rows} == expected
    assert {(row["attempt"], row["status"]) for row in rows} == {(1, "succeeded")}
    assert len({row["worker"] for row in rows}) > 1
    assert sidecar.sql("SELECT 1 FROM runs") == host.drain(missed) == host.drain("mainapp_due") == []


def test_overlap_skip_never_runs_two_at_a_time_under_load(sidecar, host, staff):
    sidecar.up(consumers=2, producers=2)
    at_work, doubled, lock, passes = Counter(), [], threading.Lock(), threading.Event()

    def work(event):
        with lock:
            at_work[event.job_id] += 1
            if at_work[event.job_id] > 1:
                doubled.append(event)
        passes.wait(0.02)  # time in which a second one would be seen
        with lock:
            at_work[event.job_id] -= 1
        if event.run.attempt == 1 and event.occurrence % 3 == 0:
            raise RuntimeError("retried while the run is open")

    staff(8, work)
    policy = {"overlap": "skip", "backoff": [0.05]}
    jobs = [host.request(run_at=iso(utc()), every=0.1, run=policy) for _ in range(10)]


    def enough():
        for job in jobs:
            host.publish("trigger", {"id": job})
        return len(history(sidecar)) >= 100

    until(enough, "a hundred runs", within=3 * DEADLINE)
    for job in jobs:
        host.publish("cancel", {"id": job})
    until(lambda: not sidecar.sql("SELECT 1 FROM runs") and not sum(at_work.values()), "every run's end")
    assert doubled == []
    # None was emitted before the previous one had ended.
    open_twice = sidecar.sql(
        "SELECT 1 FROM run_history a JOIN run_history b ON a.job_id = b.job_id AND a.event_id <> b.event_id "
        "AND a.attempt = 1 AND b.attempt = 1 AND a.emitted_at < b.emitted_at AND a.finished_at > b.emitted_at"
    )
    assert open_twice == []


def test_a_killed_workers_run_is_finished_by_another(sidecar, host, staff, amqp_url):
    sidecar.up()
    worker = subprocess.Popen([sys.executable, "-c", STUCK, amqp_url], stdout=subprocess.PIPE, text=True)
    try:
        host.request(run_at=iso(utc()), run={"backoff": [0]})
        assert worker.stdout.readline() == "at work\n"
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    staff(1, lambda event: event.run.attempt)
    [row] = until(lambda: sidecar.sql("SELECT * FROM run_history"), "the run's end")
    ended = [(attempt["outcome"], attempt["worker"], attempt.get("output")) for attempt in row["attempts"]]
    assert ended == [("lost", "dies", None), ("succeeded", "w0", "2")]


def test_a_run_is_dead_after_its_last_attempt_and_can_be_replayed(
    sidecar, host, staff, amqp_url
):
    sidecar.up()
    finished = host.listen("schedule.events", "finished")
    mended = threading.Event()

    def work(event):
        if not mended.is_set():
            raise RuntimeError(f"out of order at attempt {event.run.attempt}")
        return "done"

    staff(2, work)
    host.request(run_at=iso(utc()), run={"delay": 0, "max_attempts": 4})
    told = json.loads(host.get(finished)[2])
    assert (told["status"], told["attempts"]) == ("dead", 4)
    _, properties, body = host.get("scheduler_dead")
    assert json.loads(body)["event_id"] == told["event_id"]
    assert properties.headers["x-attempts"] == 4
    assert "out of order at attempt 4" in properties.headers["x-dead-reason"]
    mended.set()
    another = Host(amqp_url)
    another.publish("retry", {"event_id": told["event_id"]})
    another.close()
    told = json.loads(host.get(finished)[2])
    assert (told["status"], told["attempts"], told["output"]) == ("succeeded", 5, "done")
    assert host.drain("scheduler_dead") == []
