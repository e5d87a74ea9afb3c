"""First things first: priorities, routes and tenants, as a host sees them."""

import json
import re
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import pytest
from support import DEADLINE, Host, iso, may_have_let_go, until, utc

from scheduler.client import SchedulerClient
from scheduler.dev.servers.vhosts import name_of
from scheduler.domain.jobs.emission import event_id
from scheduler.testing import Sidecar

RUN = {"max_attempts": 2, "backoff": [0]}


@pytest.fixture
def up(sidecar):
    return sidecar.up()


def take(host, queue, count=1):
    return [host.get(queue) for _ in range(count)]


def answer(host, key, body, **properties):
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    host.publish(key, body, reply_to=replies, **properties)
    return json.loads(host.get(replies)[2])


@pytest.mark.usefixtures("up")
def test_a_priority_is_a_property_of_the_event_and_of_each_attempt(host):
    for priority in ("high", "normal", "low", None):
        given = {} if priority is None else {"priority": priority}
        host.request(job_type=str(priority), run_at=iso(utc()), **given)
        host.request(job_type=str(priority), run_at=iso(utc()), run=RUN, **given)
    found, attempts = {}, []
    for _ in range(12):
        _, properties, body = host.get("mainapp_due")
        event = json.loads(body)
        found.setdefault(event["job_type"], set()).add(properties.priority)
        attempts.append(event.get("run", {}).get("attempt"))
        if attempts[-1] == 1:
            host.publish("result", {"event_id": event["event_id"], "attempt": 1, "status": "failed"})
    assert [attempts.count(each) for each in (None, 1, 2)] == [4, 4, 4]
    assert found == {"high": {9}, "normal": {5}, "low": {1}, "None": {None}}


def test_under_backlog_high_goes_first_and_none_starves(sidecar, host):
    sidecar.start("consumer").ready()

    def in_order():
        """Whether they arrived in order; other orders are accepted only if the producer was frozen."""
        jobs = {host.request(job_type=priority, run_at=iso(utc(seconds=-n)), priority=priority)
                for n in range(40) for priority in ("low", "normal", "high")}
        pending = "SELECT count(*) AS n FROM jobs WHERE status = 'pending'"
        until(lambda: sidecar.sql(pending)[0]["n"] == len(jobs), "all stored")
        producer = sidecar.start("producer", SCHEDULER_BATCH_SIZE="9").ready()
        order = []
        while jobs:
            [event] = host.due()
            order.append(event["job_type"])
            jobs.discard(event["job_id"])
        # A batch has room for nine of the higher classes and one other; for high, eight, so that others continue.
        if order[:10] == ["high"] * 8 + ["normal", "low"] and all(
            set(order[start : start + 10]) == {"high", "normal", "low"} for start in range(0, 50, 10)
        ):
            return True
        assert may_have_let_go(producer), order
        producer.stop()
        host.drain("mainapp_due")  # what came twice
        return False

    until(in_order, "a producer that was not frozen", within=4 * DEADLINE)


def test_an_unbound_route_delays_no_other_event(up, host):
    fast = host.listen("schedule.events", "due.mails.fast")
    all_mails = host.listen("schedule.events", "due.mails.#")
    host.request(job_type="mail", run_at=iso(utc()), route="mails.fast")
    for queue in (fast, all_mails):
        [(method, _, body)] = take(host, queue)
        assert (method.routing_key, json.loads(body)["job_type"]) == ("due.mails.fast", "mail")
    nobody = host.request(job_type="export", run_at=iso(utc()), route="exports.slow")
    other = host.request(job_type="other", run_at=iso(utc()))
    assert host.due()[0]["job_id"] == other
    job = until(lambda: (row := up.stored(nobody))["last_problem"] and row, "the refusal noted")
    assert job["last_problem"] == (
        "returned: no queue is bound to schedule.events for the routing key due.exports.slow"
    )
    producer = next(process for process in up.processes if process.role == "producer")
    assert producer.logged("events not delivered")["routing_key"] == "due.exports.slow"
    late = host.listen("schedule.events", "due.exports.slow")
    [(_, _, body)] = take(host, late)
    assert json.loads(body)["job_id"] == nobody


@pytest.mark.parametrize(("fields", "field"), [
    ({"priority": "urgent"}, "priority"), ({"priority": 9}, "priority"), ({"route": ""}, "route"),
    ({"route": "a..b"}, "route"), ({"route": "a.*"}, "route"), ({"route": "x" * 201}, "route"),
    ({"route": "a b"}, "route"), ({"route": "a\n"}, "route"), ({"tenant": ""}, "tenant"),
    ({"tenant": "a/b"}, "tenant"), ({"tenant": "t" * 101}, "tenant"), ({"tenant": None}, "tenant"),
    ({"name": "n" * 201}, "name"), ({"name": 5}, "name"),
    ({"route": "a", "target": {"command": {"name": "x"}}}, "route"), ({"target": {}}, "target"),
    ({"target": {"command": {"name": "a b"}}}, "target.command.name"),
])
def test_invalid_priorities_routes_and_tenants_are_named(fields, field):
    refused = Sidecar().request(id=uuid4(), job_type="a", run_at=iso(utc()), **fields)
    assert [error.field for error in refused.errors] == [field], refused


@pytest.mark.usefixtures("up")
def test_events_have_the_tenant_unless_it_is_default(host):
    finished = host.listen("schedule.events", "finished")
    for tenant in ("default", "team-a"):
        host.request(job_type=tenant, run_at=iso(utc()), tenant=tenant, run=RUN)
    host.request(job_type="team-a", run_at=iso(utc()), tenant="team-a")
    for event in host.due(3):
        assert event.get("tenant", "default") == event["job_type"]
        assert ("tenant" in event) == (event["job_type"] != "default")
        if "run" in event:
            host.publish("result", {"event_id": event["event_id"], "attempt": 1, "status": "succeeded"})
    for _, _, body in take(host, finished, 2):
        told = json.loads(body)
        assert told.get("tenant", "default") == told["job_type"]


def test_another_tenants_job_is_not_available_and_unchanged(up, host):
    job = host.request(job_type="mine", run_at=iso(utc(hours=1)), tenant="a", run=RUN)
    before = up.stored(job)
    for key in ("cancel", "pause", "resume", "trigger"):
        refused = answer(host, key, {"id": job, "tenant": "b"})
        assert refused["errors"] == [{"field": "id", "problem": "is not available"}]
    refused = answer(host, "request", {"id": job, "job_type": "theirs", "run_at": iso(utc()), "tenant": "b"})
    assert refused["errors"] == [{"field": "id", "problem": "is not available"}]
    refused = answer(host, "cancel", {"id": job})
    assert refused["errors"] == [{"field": "id", "problem": "is not available"}]
    assert up.job(job) == before
    assert answer(host, "trigger", {"id": job, "tenant": "a"})["status"] == "scheduled"
    [event] = host.due()
    report = {"event_id": event["event_id"], "attempt": 1}
    refused = answer(host, "result", report | {"status": "succeeded", "tenant": "b"})
    assert refused["errors"] == [{"field": "event_id", "problem": "is not available"}]
    assert answer(host, "result", report | {"status": "failed", "retry": False})["status"] == "recorded"
    until(lambda: up.sql("SELECT 1 FROM run_history"), "a dead run")
    unknown = answer(host, "retry", {"event_id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "tenant": "b"})
    anothers = answer(host, "retry", {"event_id": event["event_id"], "tenant": "b"})
    assert unknown["errors"] == anothers["errors"]
    assert answer(host, "retry", {"event_id": event["event_id"], "tenant": "a"})["status"] == "scheduled"


def test_an_early_result_of_another_tenant_is_ignored(sidecar, host):
    sidecar.start("consumer").ready()
    moment = utc(seconds=1)
    job = host.request(job_type="mine", run_at=iso(moment), tenant="a", run=RUN)
    sidecar.stored(job)
    report = {"event_id": event_id(job, moment), "attempt": 1, "status": "succeeded", "tenant": "b"}
    assert answer(host, "result", report)["status"] == "recorded"
    sidecar.start("producer").ready()
    [event] = host.due()
    assert event["event_id"] == report["event_id"]
    row = until(lambda: sidecar.sql("SELECT status FROM runs WHERE attempt = 1"), "the run")[0]
    assert row["status"] == "delivered"


@pytest.mark.usefixtures("up")
def test_the_documented_queues_keep_the_order(host):
    """docs/priorities.md: a classic queue that reads the property, and one quorum queue for each class."""
    page = (Path(__file__).parents[2] / "docs" / "priorities.md").read_text(encoding="utf-8")
    for code in re.findall(r"^```py\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE):
        exec(compile(code, "docs/priorities.md", "exec"), {"channel": host.channel})
    for priority in ("low", "high"):
        host.request(job_type=priority, run_at=iso(utc()), route="mails", priority=priority)
    count = partial(host.channel.queue_declare, "mainapp_mails", passive=True)
    until(lambda: count().method.message_count == 2, "both events")
    assert [json.loads(body)["job_type"] for _, _, body in take(host, "mainapp_mails", 2)] == ["high", "low"]
    host.request(job_type="newsletter", run_at=iso(utc()), route="bulk")
    host.request(job_type="reset", run_at=iso(utc()), route="urgent")
    assert json.loads(host.get("mainapp_urgent")[2])["job_type"] == "reset"
    assert json.loads(host.get("mainapp_bulk")[2])["job_type"] == "newsletter"


@pytest.fixture
def teams(stack, vhost):
    """Two users of the broker, by name, with the URL of each."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    evaluate, everything = stack.rabbitmq.evaluate, ",".join(['<<".*">>'] * 3)
    names = [f"team-{uuid4().hex[:8]}" for _ in range(2)]
    place = urlsplit(vhost).netloc.rpartition("@")[2]
    for name in names:
        evaluate(f'rabbit_auth_backend_internal:add_user(<<"{name}">>, <<"secret">>, <<"test">>), '
                 f'rabbit_auth_backend_internal:set_permissions(<<"{name}">>, <<"{name_of(vhost)}">>, '
                 f'{everything}, <<"test">>)')
    yield {name: urlsplit(vhost)._replace(netloc=f"{name}:secret@{place}").geturl() for name in names}
    for name in names:
        evaluate(f'rabbit_auth_backend_internal:delete_user(<<"{name}">>, <<"test">>)')


def test_with_user_id_the_tenant_is_the_verified_user(teams, sidecar, host):
    """Two broker users that send commands and results about each other's ids change and learn nothing."""
    names, urls = list(teams), list(teams.values())
    sidecar.up(SCHEDULER_TENANT_BY="user_id")
    a, b = [Host(url) for url in urls]
    try:
        job = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d12"
        body = {"id": job, "job_type": "mine", "run_at": iso(utc(hours=1)), "run": RUN}
        assert answer(a, "request", body)["errors"][0]["field"] == "user_id"
        lying = answer(a, "request", body | {"tenant": names[1]}, user_id=names[0])
        assert lying["errors"][0]["field"] == "tenant"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):  # the broker rejects other users' names
            a.publish("request", body, user_id=names[1])
        a.channel = a.connection.channel()
        a.channel.confirm_delivery()
        assert answer(a, "request", body, user_id=names[0])["status"] == "scheduled"
        assert sidecar.stored(job)["tenant"] == names[0]
        before = sidecar.job(job)
        for key in ("cancel", "pause", "trigger"):
            refused = answer(b, key, {"id": job}, user_id=names[1])
            assert refused["errors"] == [{"field": "id", "problem": "is not available"}]
        assert sidecar.job(job) == before
        assert answer(a, "trigger", {"id": job}, user_id=names[0])["status"] == "scheduled"
        [event] = host.due()
        report = {"event_id": event["event_id"], "attempt": 1, "status": "succeeded"}
        refused = answer(b, "result", report, user_id=names[1])
        assert refused["errors"] == [{"field": "event_id", "problem": "is not available"}]
        assert answer(b, "result", report)["errors"][0]["field"] == "user_id"
        assert answer(a, "result", report, user_id=names[0])["status"] == "recorded"
        # The sidecar's worker serves all tenants; the client names its tenant.
        sidecar.start("worker", SCHEDULER_TENANT_BY="user_id").ready()
        with SchedulerClient(urls[0], user_id=names[0]) as client:
            asked = client.schedule(uuid4(), "call", run_at=utc(), wait=60,
                                    target={"webhook": {"url": "http://127.0.0.1:9/nobody"}})
        refused = until(lambda: sidecar.sql("SELECT * FROM run_history WHERE job_id = %s", str(asked.id)),
                        "the worker's word")[0]
        assert (refused["status"], refused["tenant"]) == ("dead", names[0])
        assert "not public" in refused["error"] or "refused" in refused["error"]
    finally:
        a.close()
        b.close()
