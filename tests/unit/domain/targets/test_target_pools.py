"""A target's pool: its validation, and the names of routing keys and queues."""

import json
from datetime import UTC, datetime

import pytest

from scheduler.domain.errors import Misconfigured, Rejected
from scheduler.domain.jobs.definition import define
from scheduler.domain.message_parser import parse_command
from scheduler.domain.targets.pools import in_pool
from scheduler.domain.targets.target import restore_credentials, target_of_key, work_key
from scheduler.emitting.run_messages import not_delivered
from scheduler.rabbit.publisher import Receipt
from scheduler.settings import load

WEBHOOK = {"webhook": {"url": "https://example.org/"}}
COMMAND = {"command": {"name": "tidy"}}
NOW = datetime(2026, 11, 18, tzinfo=UTC)


def parsed(target):
    body = {"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "x", "run_at": "2026-12-01T09:00:00Z",
            "target": target}
    return parse_command("request", json.dumps(body).encode(), max_payload_bytes=10_000)


def stored(target):
    return define(parsed(target), NOW).target


@pytest.mark.parametrize(("target", "key"), [
    (WEBHOOK, "webhook"), (WEBHOOK | {"pool": "default"}, "webhook"), (WEBHOOK | {"pool": None}, "webhook"),
    (WEBHOOK | {"pool": "gpu"}, "webhook.gpu"), (WEBHOOK | {"pool": "a" * 100}, "webhook." + "a" * 100),
    (COMMAND, "command.tidy"), (COMMAND | {"pool": "default"}, "command.tidy"),
    (COMMAND | {"pool": "GPU_-9"}, "command.tidy.GPU_-9"),
])
def test_the_routing_key_of_a_pool(target, key):
    assert work_key(stored(target)) == key
    assert target_of_key(key).kind in target


def test_a_target_without_a_pool_is_stored_as_before():
    assert stored(WEBHOOK) == '{"webhook":{"url":"https://example.org/"}}'
    assert json.loads(stored(COMMAND | {"pool": "gpu"})) == COMMAND | {"pool": "gpu"}


def test_the_names_of_queues():
    assert in_pool("scheduler_webhooks", "default") == in_pool("scheduler_webhooks", None) == "scheduler_webhooks"
    assert in_pool("scheduler_command_tidy", "gpu") == "scheduler_command_tidy.gpu"


@pytest.mark.parametrize("pool", ["", "a.b", "a b", "#", "*", "a\n", "ü", "a" * 101, 7, ["gpu"]])
def test_a_bad_pool_is_rejected_with_its_field(pool):
    with pytest.raises(Rejected) as rejected:
        parsed(WEBHOOK | {"pool": pool})
    assert [problem.field for problem in rejected.value.problems] == ["target.pool"]


def test_a_pool_alone_is_not_a_target():
    with pytest.raises(Rejected, match="exactly one of webhook and command"):
        parsed({"pool": "gpu"})


def test_an_edit_with_masks_keeps_the_pool():
    hidden = {"webhook": {"url": "https://example.org/", "headers": {"Authorization": "***"}}, "pool": "gpu"}
    before = json.dumps(hidden).replace("***", "Bearer x")
    restored = restore_credentials(parsed(hidden).command.target, before)
    assert (restored.pool, restored.webhook.headers["Authorization"]) == ("gpu", "Bearer x")


def test_the_reason_names_the_pool_that_no_worker_serves():
    def reason(key):
        return not_delivered(Receipt.RETURNED, "schedule.work", key)[0]

    assert reason("command.tidy") == "returned: no worker offers the command tidy"
    assert reason("command.tidy.gpu") == "returned: no worker of the pool gpu offers the command tidy"
    assert reason("webhook.gpu") == "returned: no worker of the pool gpu offers webhooks"
    assert "no queue is bound to schedule.work for the routing key webhook" in reason("webhook")
    advice = not_delivered(Receipt.RETURNED, "schedule.work", "command.tidy.gpu")[1]
    assert "SCHEDULER_WORKER_POOLS lists gpu and whose SCHEDULER_COMMANDS_FILE lists it" in advice


def test_the_pools_of_a_worker():
    assert load({}).worker_pools == ("default",)
    assert load({"SCHEDULER_WORKER_POOLS": "gpu, default,gpu"}).worker_pools == ("gpu", "default")
    for text in (",", "a.b", "ü", "a" * 101, ",".join(map(str, range(21)))):
        with pytest.raises(Misconfigured, match="SCHEDULER_WORKER_POOLS"):
            load({"SCHEDULER_WORKER_POOLS": text})
