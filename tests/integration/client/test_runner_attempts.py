"""Attempts at one event never run side by side in one Runner; async handlers are awaited and can be cancelled."""

import asyncio
import contextvars
import functools
import threading

import pytest
from runner_support import Running, due, tracked
from support import DEADLINE, until

from scheduler.client import GiveUp, Handlers, Snooze


@pytest.fixture
def running(amqp_url, host):
    made = Running(amqp_url, host)
    made.begun, made.finish = threading.Semaphore(0), threading.Event()
    yield made
    made.finish.set()
    made.stop()


def quick(running):
    """Wait until an event that came after the others was handled."""
    done = threading.Event()
    running.handlers.on_due("quick")(lambda _: done.set())
    running.emit(due("quick"))
    assert done.wait(DEADLINE)


@pytest.mark.parametrize("fails", [False, True])
def test_a_second_attempt_waits_for_the_first_and_is_skipped_if_that_succeeds(running, fails):
    @running.handlers.on_due("slow")
    def _(event):
        running.seen.put(event.run.attempt)
        running.begun.release()
        assert running.finish.wait(DEADLINE)
        if event.run.attempt == 1 and fails:
            raise RuntimeError("mail server unreachable")
        return f"attempt {event.run.attempt}"

    running.start()
    sent = running.emit(tracked(job_type="slow"))
    assert running.begun.acquire(timeout=DEADLINE)
    running.emit(tracked(sent, 2))
    quick(running)
    assert running.seen.qsize() == 1
    running.finish.set()
    result = running.results("succeeded")
    assert (result["attempt"], result["output"]) == ((2, "attempt 2") if fails else (1, "attempt 1"))
    until(lambda: running.depth("mainapp_due") == 0, "an empty queue")
    running.stop()
    assert running.depth("mainapp_due") == 0
    assert running.seen.qsize() == (2 if fails else 1)


def test_a_duplicate_of_a_running_event_is_not_handled_side_by_side(running):
    @running.handlers.on_due("slow")
    def _(event):
        running.seen.put(event.event_id)
        running.begun.release()
        assert running.finish.wait(DEADLINE)

    running.start()
    sent = running.emit(due("slow"))
    assert running.begun.acquire(timeout=DEADLINE)
    running.emit(sent)
    quick(running)
    assert running.seen.qsize() == 1
    running.finish.set()
    running.stop()
    assert running.depth("mainapp_due") == 0


class Callable:
    async def __call__(self, event):
        await asyncio.sleep(0)
        return event.payload


async def plain(event):
    await asyncio.sleep(0)
    return event.payload


async def with_more(_more, event):
    return await plain(event)


def returns_awaitable(event):
    return plain(event)


@pytest.mark.parametrize("handler", [
    plain, Callable(), functools.partial(with_more, 1), functools.partial(functools.partial(with_more), 2),
    returns_awaitable,
])
def test_async_handlers_are_awaited_and_their_value_is_the_output(running, handler):
    running.handlers.on_due("async")(handler)
    running.start()
    running.emit(tracked(job_type="async", n=7))
    assert running.results("succeeded")["output"] == {"n": 7}


def test_an_async_handler_that_fails_is_retried_and_one_that_exits_ends_nothing_else(running):
    calls = []

    @running.handlers.on_due("async")
    async def _(_event):
        await asyncio.sleep(0)
        calls.append(len(calls))
        if len(calls) == 1:
            raise SystemExit(3)
        if len(calls) == 2:
            raise RuntimeError("mail server unreachable")
        running.begun.release()

    running.start()
    running.emit(due("async"))
    assert running.begun.acquire(timeout=DEADLINE)
    running.stop()
    assert (calls, running.depth("mainapp_due")) == ([0, 1, 2], 0)


@pytest.mark.parametrize(("raised", "status"), [(Snooze(5), "snoozed"), (GiveUp("no such invoice"), "failed")])
def test_an_async_handler_may_snooze_or_give_up(running, raised, status):
    @running.handlers.on_due("async")
    async def _(_event):
        await asyncio.sleep(0)
        raise raised

    running.start()
    running.emit(tracked(job_type="async"))
    said = running.results(status)
    assert said.get("retry_in") == (5 if status == "snoozed" else None)
    assert said.get("error") == (None if status == "snoozed" else "no such invoice")


def test_no_more_async_handlers_run_at_once_than_there_are_workers(amqp_url, host):
    running = Running(amqp_url, host, workers=2, prefetch=10)
    loops, most = set(), [0, 0]

    @running.handlers.on_due("async")
    async def _(_event):
        loops.add(asyncio.get_running_loop())
        most[0] += 1
        most[1] = max(most)
        await asyncio.sleep(0.01)
        most[0] -= 1
        running.seen.put(1)

    running.start()
    for _ in range(10):
        running.emit(due("async"))
    until(lambda: running.seen.qsize() == 10, "ten events")
    running.stop()
    assert (most[1], len(loops)) == (2, 1)


def test_an_async_handler_has_a_context_of_its_own(running):
    variable = contextvars.ContextVar("variable", default=0)

    @running.handlers.on_due("async")
    async def _(_event):
        variable.set(variable.get() + 1)
        await asyncio.sleep(0)
        running.seen.put(variable.get())

    running.start()
    for _ in range(6):
        running.emit(due("async"))
    assert [running.seen.get(timeout=DEADLINE) for _ in range(6)] == [1] * 6


def test_an_async_handler_is_cancelled_after_its_timeout(running):
    @running.handlers.on_due("async", timeout=0.1)
    async def _(_event):
        try:
            await asyncio.sleep(3600)
        finally:
            running.seen.put("cleaned up")

    running.start()
    running.emit(tracked(job_type="async"))
    said = running.results("failed")
    assert "longer than its timeout of 0.1 s" in said["error"]
    assert said["retry"]
    assert running.seen.get(timeout=DEADLINE) == "cleaned up"


def test_an_async_handler_is_cancelled_when_the_next_attempt_is_delivered(running):
    @running.handlers.on_due("async")
    async def _(event):
        running.seen.put(event.run.attempt)
        if event.run.attempt == 1:
            try:
                await asyncio.sleep(3600)
            finally:
                running.seen.put("cancelled")

    running.start()
    sent = running.emit(tracked(job_type="async"))
    assert running.seen.get(timeout=DEADLINE) == 1
    running.emit(tracked(sent, 2))
    assert running.results("succeeded")["attempt"] == 2
    assert [running.seen.get(timeout=DEADLINE) for _ in range(2)] == ["cancelled", 2]


def test_a_handler_that_could_never_run_is_refused_when_it_is_registered():
    async def async_generator(_event):
        yield 1

    def generator(_event):
        yield 1

    class CallableGenerator:
        async def __call__(self, _event):
            yield 1

    handlers = Handlers()
    for handler in (async_generator, generator, CallableGenerator(), functools.partial(async_generator)):
        with pytest.raises(TypeError, match="generator"):
            handlers.on_due("a")(handler)
    with pytest.raises(TypeError, match="cannot be stopped"):
        handlers.on_due("a", timeout=5)(print)
    with pytest.raises(TypeError, match="top level"):
        handlers.on_due("a", process=True)(lambda _: None)
    with pytest.raises(ValueError, match="timeout"):
        handlers.on_due("a", timeout=0)
    assert list(handlers) == []
