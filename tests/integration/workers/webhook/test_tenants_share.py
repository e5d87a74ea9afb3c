"""Slow calls, slow names and large events of one tenant do not delay another tenant."""

import asyncio
import contextlib
import json
import socket
import threading
from contextlib import ExitStack
from uuid import uuid4

import aiohttp
import pytest
from endpoints import answer, endpoint, event
from support import DEADLINE, Process, until

from scheduler.settings import Settings
from scheduler.workers.webhook import exchange
from scheduler.workers.webhook.dns_resolver import RESOLVERS
from scheduler.workers.webhook.http_call import WebhookCaller
from scheduler.workers.webhook.request import WebhookRequest


@pytest.fixture
def start(amqp_url):
    started = []

    def worker(**env):
        process = Process("worker", {"AMQP_URL": amqp_url, "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8"} | env).ready()
        started.append(process)
        return process

    yield worker
    for each in started:
        each.kill()


@pytest.fixture
def hanging():
    """Yield endpoints that accept connections and never respond."""
    with ExitStack() as stack:
        made = [stack.enter_context(endpoint()) for _ in range(6)]
        for each in made:
            each.on("/", never)
        yield made


def never(connection, _):
    """Send no response until the worker disconnects."""
    connection.settimeout(None)
    while connection.recv(1024):
        pass


def publish(host, each, tenant):
    host.publish("webhook", each | {"tenant": tenant}, exchange="schedule.work")


def result_of(host, event_id):
    """Wait for the final result of an event; skip results of other events."""
    found = {}

    def there():
        while (body := host.channel.basic_get("scheduler_results", auto_ack=True)[2]) is not None:
            said = json.loads(body)
            if said.get("status") not in (None, "running"):
                found[said["event_id"]] = said
        return found.get(event_id)

    return until(there, "the result of a call")


def flood(host, hanging, tenant, count, **fields):
    for number in range(count):
        publish(host, event(hanging[number % len(hanging)].url("/"), timeout=900) | fields, tenant)


@pytest.mark.parametrize(("noisy", "quiet"), [("noisy", "quiet"), ("default", "acme"), ("acme", "default")])
def test_a_tenant_whose_calls_hang_delays_no_other_tenant(start, host, hanging, noisy, quiet):
    worker = start(SCHEDULER_WORKER_CONCURRENCY="10")
    # More than the worker may hold: calls in flight, pending calls and prefetched events.
    flood(host, hanging, noisy, 120)
    until(lambda: worker.metric("scheduler_webhooks_in_flight") >= 10, "every place taken")
    with endpoint() as server:
        server.on("/", answer(200))
        for _ in range(5):
            due = event(server.url("/"))
            publish(host, due, quiet)
            result = result_of(host, due["event_id"])
            assert result["status"] == "succeeded", result
    assert worker.metric("scheduler_webhooks_in_flight") <= 12


def test_a_tenant_with_large_events_leaves_room_for_anothers(start, host, hanging):
    worker = start(SCHEDULER_WORKER_CONCURRENCY="100", SCHEDULER_WEBHOOK_HOST_CONCURRENCY="100")
    flood(host, hanging, "noisy", 70, payload={"x": "y" * 1_000_000})
    until(lambda: worker.metric("scheduler_webhooks_in_flight") >= 40, "much that is held")
    with endpoint() as server:
        due = event(server.url("/"))
        publish(host, due, "quiet")
        assert result_of(host, due["event_id"])["status"] == "succeeded"


def request(url, timeout=DEADLINE):
    return WebhookRequest("GET", url, {"X-Id": str(uuid4())}, None, timeout)


def test_a_tenant_with_slow_names_leaves_resolvers_to_others(monkeypatch):
    resolved, gate, real = [], threading.Event(), socket.getaddrinfo

    def slow(name, *args, **fields):
        if name.endswith(".slow.test"):
            resolved.append(name)
            gate.wait(DEADLINE)
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return real("127.0.0.1", *args, **fields)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def run(port):
        caller = WebhookCaller(Settings(webhook_allow=("127.0.0.1",)))
        caller.open()
        stuck = [asyncio.create_task(caller.call(request(f"http://{number}.slow.test/"), "x", "x", 60, "noisy"))
                 for number in range(3 * RESOLVERS)]
        while len(resolved) < RESOLVERS:  # noqa: ASYNC110 - filled by threads
            await asyncio.sleep(0.01)
        try:
            return await caller.call(request(f"http://fine.test:{port}/"), "x", "fine.test", 60, "quiet")
        finally:
            gate.set()
            for each in stuck:
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*stuck, return_exceptions=True)
            await caller.close()

    with endpoint() as server:
        called = asyncio.run(run(server.port))
        assert called.answered, called.outcome


def test_a_port_that_does_not_even_connect_is_given_up_before_the_calls_own_time(monkeypatch):
    monkeypatch.setattr(exchange, "_CONNECTING", aiohttp.ClientTimeout(connect=1.0))

    async def run(port):
        caller = WebhookCaller(Settings(webhook_allow=("127.0.0.1",)))
        caller.open()
        try:
            return await caller.call(request(f"http://127.0.0.1:{port}/", 900), f"there:{port}", "127.0.0.1", 60)
        finally:
            await caller.close()

    with socket.socket() as listening, ExitStack() as stack:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        for _ in range(8):  # the kernel drops what its queue has no room for
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        called = asyncio.run(run(port))
    assert (called.kind, called.answered) == ("timeout", False)
    assert called.outcome.error == f"there:{port}: no connection within 15 s"
    assert called.outcome.retry
