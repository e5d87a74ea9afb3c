"""A stop at any moment loses no event and no result of a worker."""

import json
import shutil
import threading
from uuid import uuid4

import pytest
from support import DEADLINE, until

from scheduler.ops.health import Health
from scheduler.processes.runtime import Stop
from scheduler.rabbit.command_queue import CommandQueue
from scheduler.rabbit.link import Link
from scheduler.rabbit.topology import work_arguments
from scheduler.settings import Settings
from scheduler.workers.command import service as commands_module
from scheduler.workers.command.service import CommandWorker
from scheduler.workers.worker import Worker

RESULTS = ("scheduler_results", "schedule.commands", "result")


@pytest.fixture
def stop(monkeypatch):
    """A stop that leaves the worker enough time to report all results."""
    monkeypatch.setattr(commands_module, "_FLUSH_SECONDS", DEADLINE)
    return Stop()


@pytest.fixture
def commands(amqp_url, host, tmp_path, stop):
    """A CommandWorker with one connection and the command `nap`, which accepts no arguments and does not end."""
    (tmp_path / "commands.toml").write_text(f'[nap]\nrun = ["{shutil.which("sleep")}", "100000"]\n')
    settings = Settings(commands_file=str(tmp_path / "commands.toml"), stop_grace=0)
    kind = work_arguments(settings.queue_type)
    host.channel.queue_declare("scheduler_command_nap", durable=True, arguments=kind)
    host.channel.queue_bind("scheduler_command_nap", "schedule.work", "command.nap")
    made, link = CommandWorker(settings, stop, Health().part("rabbitmq"), Worker(settings)), Link(amqp_url, "test")
    serving = threading.Thread(target=made.run, args=(link,), daemon=True)
    serving.start()
    yield made
    stop.set()
    made.finish()
    serving.join()
    link.close()


def due(host, *arguments):
    event = {"event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "t", "run": {"attempt": 1},
             "target": {"command": {"name": "nap", "arguments": arguments}}}
    host.publish("command.nap", event, exchange="schedule.work")
    return event["event_id"]


def test_acknowledged_attempts_are_snoozed_on_a_stop(monkeypatch, commands, host, stop):
    acknowledge = CommandQueue.acknowledge

    def stopped_meanwhile(*delivery):
        stop.set()
        acknowledge(*delivery)

    monkeypatch.setattr(CommandQueue, "acknowledge", stopped_meanwhile)
    event_id = due(host)
    _, properties, body = host.get(RESULTS[0])
    assert json.loads(body)["status"] == "running"
    recorded = {"event_id": event_id, "status": "recorded"}
    host.publish(properties.reply_to, recorded, exchange="", correlation_id=properties.correlation_id)
    commands.finish()
    last = json.loads(host.drain(RESULTS[0])[-1])
    assert (last["event_id"], last["status"], last["retry_in"]) == (event_id, "snoozed", 0)


def test_an_unroutable_result_is_published_after_a_stop(commands, host, stop):
    host.channel.queue_unbind(*RESULTS)
    event_id = due(host, "more than it takes")
    reporter = commands._reporter
    until(lambda: reporter._pending and not reporter._unconfirmed, "the broker's refusal")
    stop.set()
    until(lambda: commands._stop_by, "the stop to be seen")
    host.channel.queue_bind(*RESULTS)
    commands.finish()
    [said] = map(json.loads, host.drain(RESULTS[0]))
    assert (said["event_id"], said["status"], said["retry"]) == (event_id, "failed", False)
