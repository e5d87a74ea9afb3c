"""Concurrent callers share one query, and slow queries do not run every second."""

import asyncio

import pytest

from scheduler.api.coalesced_reads import MAX_SECONDS, MIN_SECONDS, SHARE, CoalescedReads


class Looks:
    """A slow look that counts, and a clock that only it moves."""

    def __init__(self):
        self.now, self.made, self.takes = 100.0, 0, 0.0
        self.go = asyncio.Event()
        self.go.set()
        self.fails = False

    async def look(self):
        self.made += 1
        number = self.made
        await self.go.wait()
        self.now += self.takes
        if self.fails:
            raise ConnectionError(number)
        return number


def test_concurrent_callers_share_one_query():
    async def main():
        looks = Looks()
        shared = CoalescedReads(lambda: looks.now)
        looks.go.clear()
        asking = [asyncio.create_task(shared.get("acme", looks.look)) for _ in range(20)]
        another = asyncio.create_task(shared.get("globex", looks.look))
        await asyncio.sleep(0)
        asking[0].cancel()  # a cancelled caller leaves the query to the others
        looks.go.set()
        assert await asyncio.gather(*asking[1:]) == [1] * 19
        assert await another == 2

    asyncio.run(main())


@pytest.mark.parametrize(("takes", "kept"), [
    (0.0, MIN_SECONDS), (MIN_SECONDS, MIN_SECONDS / SHARE), (1000.0, MAX_SECONDS),
])
def test_a_result_is_cached_for_a_while(takes, kept):
    kept = min(kept, MAX_SECONDS)

    async def main():
        looks = Looks()
        looks.takes = takes
        shared = CoalescedReads(lambda: looks.now)
        assert await shared.get(None, looks.look) == 1
        looks.now += kept * 0.9
        assert await shared.get(None, looks.look) == 1
        looks.now += kept * 0.2
        assert await shared.get(None, looks.look) == 2

    asyncio.run(main())


def test_a_failure_reaches_all_waiters_and_is_not_cached():
    async def main():
        looks = Looks()
        shared = CoalescedReads(lambda: looks.now)
        looks.fails = True
        told = await asyncio.gather(*(shared.get(None, looks.look) for _ in range(3)), return_exceptions=True)
        assert [str(each) for each in told] == ["1"] * 3
        looks.fails = False
        assert await shared.get(None, looks.look) == 2

    asyncio.run(main())
