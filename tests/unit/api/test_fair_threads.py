"""Tenants share threads: the tenant with the least recent use is served first."""

import asyncio
import threading
from contextlib import closing

import pytest

from scheduler.api.fair_threads import FairThreads
from scheduler.api.problems import ServiceUnavailable
from scheduler.api.rate_limit import RequestUsage, usage_of_request


class Scenario:
    """Work of tenants that runs until it is told to end."""

    def __init__(self, threads):
        self.threads = threads
        self.order = []
        self.gates = {}

    def submit(self, tenant, name, **options):
        usage = RequestUsage()
        usage.tenant = tenant
        gate = self.gates[name] = threading.Event()
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work():
            self.order.append(name)
            loop.call_soon_threadsafe(began.set)
            gate.wait()

        async def run():
            usage_of_request.set(usage)
            await self.threads.run(work, **options)

        task = asyncio.create_task(run())
        return task, began

    def end(self, *names):
        for name in names:
            self.gates[name].set()


def play(scenario, size, **options):
    async def run():
        with closing(FairThreads("test", size, **options)) as threads:
            await scenario(Scenario(threads))

    asyncio.run(run())


def test_one_tenant_leaves_a_thread_for_others():
    async def scenario(work):
        first, began = work.submit("acme", "a1")
        others = [work.submit("acme", f"a{number}")[0] for number in range(2, 5)]
        await began.wait()
        cheap, served = work.submit("globex", "g1")
        await served.wait()  # although work of acme came first and still runs
        assert work.order == ["a1", "g1"]
        work.end("g1", "a1", "a2", "a3", "a4")
        await asyncio.gather(first, cheap, *others)
        assert work.order == ["a1", "g1", "a2", "a3", "a4"]

    play(scenario, 2)


def test_the_tenant_with_the_least_recent_use_goes_first(monkeypatch):
    used = iter([0.0, 5.0, 0.0, 1.0] + [0.0] * 100)
    monkeypatch.setattr("time.thread_time", lambda: next(used))

    async def scenario(work):
        for tenant, name in (("acme", "a1"), ("globex", "g1")):
            task, _ = work.submit(tenant, name)
            work.end(name)
            await task
        blocker, began = work.submit("initech", "i1")
        await began.wait()
        names = (("acme", "a2"), ("acme", "a3"), ("globex", "g2"), ("umbrella", "u1"))
        waiting = [work.submit(tenant, name)[0] for tenant, name in names]
        await asyncio.sleep(0)
        work.end("i1", "a2", "a3", "g2", "u1")
        await asyncio.gather(blocker, *waiting)
        assert work.order == ["a1", "g1", "i1", "u1", "g2", "a2", "a3"]

    play(scenario, 1, clock=lambda: 1000.0)


def test_work_that_waited_too_long_or_was_cancelled_is_not_done():
    now = [1000.0]

    async def scenario(work):
        blocker, began = work.submit("acme", "a1")
        await began.wait()
        late, _ = work.submit("acme", "a2", max_wait=3.0)
        cancelled, _ = work.submit("acme", "a3")
        await asyncio.sleep(0)
        cancelled.cancel()
        now[0] += 3.1
        work.end("a1")
        await blocker
        with pytest.raises(ServiceUnavailable):
            await late
        assert work.order == ["a1"]

    play(scenario, 1, clock=lambda: now[0])


def test_errors_reach_the_caller_and_processor_time_is_charged():
    async def scenario(work):
        usage = RequestUsage()
        spent = []
        usage.spend = lambda *, seconds: spent.append(seconds)
        usage_of_request.set(usage)
        with pytest.raises(ZeroDivisionError):
            await work.threads.run(lambda: 1 / 0)
        assert len(spent) == 1
        assert spent[0] >= 0

    play(scenario, 1)
