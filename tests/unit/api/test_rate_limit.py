"""The limits of a token: requests, processor time, response bytes, requests in progress."""

import asyncio
import time

import pytest

from scheduler.api import rate_limit
from scheduler.api.identity import Identity, Role
from scheduler.api.problems import TooManyRequests
from scheduler.api.rate_limit import (
    MAX_DEBT_SECONDS,
    MAX_IN_PROGRESS,
    MAX_WAITING,
    UNIT_BYTES,
    UNIT_SECONDS,
    RateLimit,
    RequestUsage,
    usage_of_request,
)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


async def start(limit, token="0"):
    """Start a request and return its usage."""
    usage = RequestUsage()
    usage_of_request.set(usage)
    await limit.admit(Identity("ann", Role.VIEWER, None, token))
    return usage


def served(limit, requests, token="0", *, cost=None):
    """Return the number of served requests, sent one after the other."""
    async def serve():
        count = 0
        for _ in range(requests):
            try:
                usage = await start(limit, token)
            except TooManyRequests:
                continue
            usage.spend(**cost or {})
            usage.leave()
            count += 1
        return count

    return asyncio.run(serve())


def test_a_token_has_its_rate_and_a_burst_of_twice_that(clock):
    limit = RateLimit(10, clock)
    assert served(limit, 50) == 20
    clock.now += 0.5
    assert served(limit, 50) == 5
    assert served(limit, 50, token="1") == 20  # another token has its own account
    clock.now += 3600
    assert served(limit, 50) == 20


def test_the_least_recently_used_token_is_dropped(monkeypatch):
    monkeypatch.setattr(rate_limit, "_MAX_TOKENS", 2)
    limit = RateLimit(1, lambda: 1.0)
    assert [served(limit, 5, token) for token in "0120"] == [2, 2, 2, 2]
    assert served(limit, 5, "2") == 0


@pytest.mark.parametrize("cost", [{"seconds": 4 * UNIT_SECONDS}, {"sent": 4 * UNIT_BYTES}])
def test_a_costly_request_costs_as_many_units_as_it_used(clock, cost):
    limit = RateLimit(10, clock)
    assert served(limit, 50, cost=cost) == 5
    clock.now += 1
    assert served(limit, 50, cost=cost) == 3  # the last one may go into debt


def test_a_list_of_200_small_jobs_costs_no_more_than_any_request(clock):
    """150 kB and 5 ms; with twice the processor time on a busy machine, still."""
    assert served(RateLimit(50, clock), 200, cost={"seconds": 0.0099, "sent": 160_000}) == 100


def test_a_debt_is_repaid_and_has_a_limit(clock):
    limit = RateLimit(10, clock)
    assert served(limit, 1, cost={"seconds": 1e6}) == 1
    with pytest.raises(TooManyRequests) as rejected:
        asyncio.run(start(limit))
    assert int(rejected.value.headers["Retry-After"]) == MAX_DEBT_SECONDS + 1
    clock.now += MAX_DEBT_SECONDS + 0.1
    assert served(limit, 5) == 1


def test_a_debt_of_less_than_a_second_is_repaid_after_a_second(clock):
    limit = RateLimit(10, clock)
    assert served(limit, 30) == 20
    with pytest.raises(TooManyRequests) as rejected:
        asyncio.run(start(limit))
    assert rejected.value.headers["Retry-After"] == "1"


def test_bytes_of_a_stream_are_charged_as_they_are_sent(clock):
    limit = RateLimit(10, clock)

    async def stream():
        usage = await start(limit)
        for _ in range(20):
            usage.spend(sent=UNIT_BYTES)

    asyncio.run(stream())
    assert served(limit, 5) == 0


def test_an_exempt_request_is_charged_once(clock):
    limit = RateLimit(10, clock)

    async def bulk():
        usage = await start(limit)
        usage.exempt()
        usage.spend(seconds=1e6)

    asyncio.run(bulk())
    assert served(limit, 50) == 19


def test_requests_beyond_those_in_progress_wait_in_order(clock):
    async def scenario():
        limit = RateLimit(1000, clock)
        running = [await start(limit) for _ in range(MAX_IN_PROGRESS)]
        order = []

        async def wait(number):
            usage = await start(limit)
            order.append(number)
            return usage

        waiting = [asyncio.create_task(wait(number)) for number in range(3)]
        other = await start(limit, token="1")  # is not kept waiting by this token
        other.leave()
        assert order == []
        waiting[1].cancel()
        for usage in running[:2]:
            usage.leave()
            usage.leave()  # once is enough
        await asyncio.gather(*waiting, return_exceptions=True)
        assert order == [0, 2]

    asyncio.run(scenario())


def test_too_many_waiting_requests_are_rejected(clock):
    async def scenario():
        limit = RateLimit(1000, clock)
        usages = [await start(limit) for _ in range(MAX_IN_PROGRESS)]
        waiting = [asyncio.create_task(start(limit)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await start(limit)
        for usage in usages:
            usage.leave()
        for task in waiting:
            (await task).leave()

    asyncio.run(scenario())


def test_requests_that_waited_while_the_token_went_into_debt_are_rejected(clock):
    async def scenario():
        limit = RateLimit(50, clock)
        running = [await start(limit) for _ in range(MAX_IN_PROGRESS)]
        waiting = [asyncio.create_task(start(limit)) for _ in range(20)]
        await asyncio.sleep(0)
        for usage in running:
            usage.spend(seconds=10 * UNIT_SECONDS)
            usage.leave()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [TooManyRequests] * 20
        clock.now += 60
        assert await start(limit)

    asyncio.run(scenario())


def test_the_processor_time_of_a_coroutine_is_measured_and_its_waiting_is_not():
    async def work():
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        await asyncio.sleep(0.05)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(3600)

    async def scenario():
        usage = RequestUsage()
        began = time.thread_time()
        await usage.measure(work())
        return usage.loop_seconds, time.thread_time() - began

    measured, whole = asyncio.run(scenario())
    assert 0.02 <= measured <= whole
