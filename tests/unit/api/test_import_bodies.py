"""Imports of one tenant neither hold up nor crowd out those of others, and lines are found at C speed."""

import asyncio
import time

import pytest

from scheduler.api import import_bodies, job_import
from scheduler.api.identity import Identity, Role
from scheduler.api.import_bodies import (
    MAX_ALL_IMPORTS,
    MAX_IMPORTS,
    ImportSlots,
    find_lines,
    has_more_lines,
    receive_body,
)
from scheduler.api.job_import import JobImport
from scheduler.api.problems import RequestTimeout, ServiceUnavailable, TooManyRequests
from scheduler.settings import load
from tests.call_count import CallCount


@pytest.mark.parametrize(("body", "lines"), [
    (b"", []), (b"\n\n \r\n", []), (b"a", [(1, b"a")]), (b"a\nb\n", [(1, b"a"), (2, b"b")]),
    (b"\n\n a b \r\n\n\tc", [(3, b"a b \r"), (5, b"c")]), (b"\x0b\na", [(2, b"a")]),
])
def test_lines_are_found_with_their_numbers(body, lines):
    found = find_lines(bytearray(body))
    assert [(number, body[start:end]) for number, start, end in found] == lines


def test_blank_lines_cost_no_work_and_no_memory():
    body = bytearray(b"\n" * 1_000_000 + b"{}")
    with CallCount(builtins=True) as calls:
        [line] = find_lines(body)
    assert line == (1_000_001, 1_000_000, 1_000_002)
    assert calls.count < 20
    assert find_lines(bytearray(b"\n" * 1_000_000)) == []  # in quadratic time this would take hours
    assert find_lines(bytearray(b"{}" + b" \n" * 500_000)) == [(1, 0, 3)]


@pytest.mark.parametrize(("body", "more"), [
    (b"", False), (b"a", False), (b"a\nb", False), (b"a\n\n", False), (b"a\n\nb", True), (b"\n\n\n", True),
    (b"a\nb\n ", True),
])
def test_blank_lines_count(body, more):
    assert has_more_lines(bytearray(body), 2) is more


def test_imports_are_limited_by_tenant_and_in_all():
    slots = ImportSlots()
    entered = [slots.enter(f"tenant {number // MAX_IMPORTS}") for number in range(MAX_ALL_IMPORTS)]
    for number, slot in enumerate(entered):
        slot.__enter__()
        if number % MAX_IMPORTS:
            with pytest.raises(TooManyRequests), slots.enter(f"tenant {number // MAX_IMPORTS}"):
                pass
    with pytest.raises(ServiceUnavailable), slots.enter("other"):
        pass
    entered[0].__exit__(None, None, None)
    with slots.enter("other"):
        pass


def test_a_body_that_arrives_slowly_makes_room(monkeypatch):
    monkeypatch.setattr(import_bodies, "GRACE_SECONDS", 0.0)

    async def never():
        yield b"{"
        await asyncio.Event().wait()

    async def occupy(slots, number):
        with slots.enter(f"tenant {number}") as slot:
            await receive_body(slot, never())

    async def scenario():
        slots = ImportSlots()
        tasks = [asyncio.create_task(occupy(slots, number)) for number in range(MAX_ALL_IMPORTS)]
        await asyncio.sleep(0)
        with slots.enter("other"):
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert done == {tasks[0]}
        assert isinstance(tasks[0].exception(), RequestTimeout)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        with slots.enter("tenant 0"), slots.enter("tenant 0"):
            pass

    asyncio.run(scenario())


def test_costly_lines_are_parsed_in_short_parts(monkeypatch):
    """The event loop never parses, and others get their turn after each costly line."""
    parts = []

    class Threads:
        async def run(self, work):
            parts.append(work)
            return await asyncio.to_thread(work)

    class NoDatabase:
        async def write(self, work):
            return ["scheduled"] * len(work.keywords["batch"])

    def busy(seconds):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    def parse(self, who, text, original=JobImport._request):
        busy(2 * job_import.PART_SECONDS)
        return original(self, who, text)

    monkeypatch.setattr(JobImport, "_request", parse)
    line = b'{"id":"7d9f0000-0000-4000-8000-%012d","job_type":"a","run_at":"2099-01-01T00:00:00Z"}\n'
    lines = b"".join([line % number for number in range(4)] + [b"{}\n"])

    async def body():
        yield lines[:50]
        yield lines[50:]

    who = Identity("ann", Role.OPERATOR, "acme")
    service = JobImport(NoDatabase(), Threads(), load({}))
    answer = asyncio.run(service.run(who, body))
    assert answer.count(b'"scheduled"') == 4
    assert answer.splitlines()[4].startswith(b'{"line": 5, "errors": ')
    assert len(parts) == 1 + 5 + 2  # the lines, each parsed alone, and twice no more
