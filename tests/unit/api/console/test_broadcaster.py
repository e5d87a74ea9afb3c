"""The broadcaster and the hour it remembers."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from scheduler.api.console.activity_history import (
    MAX_SAMPLES,
    SAMPLE_SECONDS,
    ActivityHistory,
    sample,
    timeliness_status,
)
from scheduler.api.console.broadcaster import TICK_SECONDS, Broadcaster, seconds_until_poll
from scheduler.api.console.overview_data import overview, processes, roles, tenant_overview
from scheduler.api.console.subscriptions import PollResult, Subscriptions
from scheduler.ops.metrics import LAG_BUCKETS
from scheduler.postgres.console_queries import SystemSnapshot
from scheduler.postgres.maintenance_queries import Backlog

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
FAST = [10] + [0] * len(LAG_BUCKETS)
SLOW = [0] * len(LAG_BUCKETS) + [10]


def replica(role, lag=FAST, silent=1.0, **recent):
    seen = (NOW - timedelta(seconds=silent)).isoformat()
    return {
        "id": role,
        "role": role,
        "host": "h",
        "pid": 1,
        "version": "1",
        "started_at": seen,
        "last_seen_at": seen,
        "recent": {"seconds": 10.0, "lag": lag, "due": 20, "queued": 5, **recent},
    }


def pulse(*replicas, due=0, age=0.0, **more):
    known = replicas or (replica("consumer"), replica("producer"))
    return replace(SystemSnapshot(NOW, Backlog(due, age, 5), list(known), [], [], None), **more)


def after(*pulses):
    history = ActivityHistory()
    for each in pulses:
        history.add(sample(each))
    return history


def test_a_sample_sums_the_live_processes():
    found = sample(pulse(replica("producer"), replica("producer", runs_succeeded=30, runs_dead=10),
                         replica("producer", silent=60)))
    assert (found.out, found.stored) == (4.0, 1.0)
    assert found.lags[0] == 20
    assert found.point()[-1] == 75.0


def test_an_hour_is_kept_and_no_more():
    history = ActivityHistory()
    for number in range(MAX_SAMPLES + 50):
        history.add(sample(pulse(at=NOW + timedelta(seconds=10 * number), replicas=[])))
    assert len(history.samples) == MAX_SAMPLES
    assert history.period() == "last hour"
    history.add(sample(pulse(at=NOW + timedelta(days=1), replicas=[])))
    assert (len(history.samples), history.period()) == (1, "just now")


def test_the_timeliness_status_names_the_likely_cause():
    def said(found, *before):
        return timeliness_status(found, after(*before, found))

    assert said(pulse()).text == "On time: 100 % within 500 ms (just now)"
    assert said(pulse(), pulse(replica("producer", lag=SLOW))).text.startswith(
        "Late at times: 66.7 % within 500 ms"
    )
    assert said(pulse(replica("consumer"), due=3)).text == (
        "Nothing is emitted: no producer is running: 3 reminders are due and not emitted")
    assert said(pulse(due=1204, age=180.0)).text == "Late: 1,204 reminders are due and not emitted, for 3 min"
    assert said(pulse(due=1, age=11.0)).late
    assert not said(pulse(due=1, age=1.0)).late
    assert said(pulse(replica("producer"))).grade == "waiting"
    quiet = pulse(replica("consumer", lag=[]), replica("producer", lag=[]))
    assert said(quiet).text == "On time: nothing was due (just now)"


def test_a_tenant_sees_its_own_rows_only():
    async def look():
        async def take(_):
            rows = [{"tenant": name, "retries": 0} for name in ("acme", "globex")]
            return PollResult(pulse(upcoming=rows, failing=rows))

        caster = Broadcaster(take)
        return await caster.fresh(), caster.history

    moment, history = asyncio.run(look())
    shown = tenant_overview(moment, None, "acme")
    assert [each["tenant"] for each in (*shown["upcoming"], *shown["failing"])] == ["acme", "acme"]
    assert len(overview(moment, history)["upcoming"]) == 2


def test_live_and_silent_processes_differ_by_heartbeat():
    worker = {
        "id": "w",
        "host": "h",
        "pid": 2,
        "version": "1",
        "started_at": NOW.isoformat(),
        "offers": ["webhook"],
        "last_seen_at": NOW.isoformat(),
        "in_flight": 2,
        "busy": ["odd", {"event_id": "e", "what": "x", "attempt": 2}, 7],
        "succeeded": 1,
        "failed": 0,
        "snoozed": 0,
    }
    found = pulse(replica("producer"), replica("producer", silent=99), workers=[worker])
    assert [(role["name"], role["alive"], role["silent"], role["busy"]) for role in roles(found)] == [
        ("producer", 1, 1, 0), ("worker", 1, 0, 1)]
    moment = asyncio.run(_moment(found))
    assert [task["text"] for task in processes(moment)["workers"][0]["busy"]] == ["odd", "x, attempt 2", "7"]


async def _moment(found):
    async def take(_):
        return PollResult(found)

    return await Broadcaster(take).fresh()


def test_fifty_browsers_share_one_poll():
    async def listen():
        looks = 0

        async def take(_):
            nonlocal looks
            looks += 1
            return PollResult(pulse())

        caster = Broadcaster(take)

        async def first_two():
            seen = []
            async for moment in caster.snapshots():
                seen.append(moment.number)
                if len(seen) == 2:
                    return seen
            return seen

        listeners = [asyncio.create_task(first_two()) for _ in range(50)]
        await asyncio.sleep(0)
        await caster.poll()
        while caster.listeners and not all(task.done() for task in listeners):
            before = looks
            await caster.poll()
            await asyncio.sleep(0)
            assert looks == before + 1
        return await asyncio.gather(*listeners), caster.listeners

    heard, left = asyncio.run(listen())
    assert len(heard) == 50
    assert all(len(seen) == 2 for seen in heard)
    assert left == 0


def test_a_slow_poll_lengthens_the_pause_up_to_a_limit():
    assert [seconds_until_poll(duration, watched=True) for duration in (0.0, 0.3, 3.0)] == [TICK_SECONDS, 6.0,
                                                                                    SAMPLE_SECONDS]
    assert [seconds_until_poll(duration, watched=False) for duration in (0.0, 3.0)] == [SAMPLE_SECONDS, 60.0]


def test_an_unavailable_database_keeps_the_last_snapshot():
    async def look():
        answers = iter([pulse(), OSError("gone")])

        async def take(_):
            found = next(answers)
            if isinstance(found, Exception):
                raise found
            return PollResult(found)

        caster = Broadcaster(take)
        await caster.poll()
        await caster.poll()
        return caster.snapshot, caster.history

    moment, history = asyncio.run(look())
    shown = overview(moment, history)
    assert (shown["status"].grade, shown["status"].text) == ("bad", "The database does not respond: gone")
    assert shown["backlog"] == "0"


def test_a_stop_ends_every_stream():
    async def listen():
        async def take(_):
            return PollResult(pulse())

        caster = Broadcaster(take)
        running = asyncio.create_task(caster.run())
        seen = [moment async for moment in _until_stopped(caster)]
        await asyncio.wait_for(running, 30)
        return seen

    assert len(asyncio.run(listen())) == 1


async def _until_stopped(caster):
    async for moment in caster.snapshots():
        yield moment
        caster.stop()


def test_one_poll_serves_all_subscriptions():
    watching = Subscriptions()
    assert not watching.wants(pulse=True, failures=False).runs
    with watching.of([("run", "a"), ("newest", "jobs")]), watching.of([("run", "a"), ("job row", "b")]):
        with watching.of([("job", "c")]):
            assert watching.wants(pulse=True, failures=False).watched["job"] == {"c"}
        wants = watching.wants(pulse=True, failures=False)
        assert wants.watched == {"run": {"a"}, "newest": {"jobs"}, "job row": {"b"}}
        assert (wants.runs, wants.jobs) == (True, True)
        assert not watching.wants(pulse=False, failures=False).jobs  # jobs are looked at with every pulse only
    assert watching.wants(pulse=True, failures=False).watched == {}


def test_between_full_polls_only_watched_runs_are_polled():
    async def listen():
        asked = []

        async def take(wants):
            asked.append((wants.pulse, wants.runs))
            if len(asked) == 3:
                caster.stop()
            return PollResult(pulse() if wants.pulse else None)

        caster = Broadcaster(take)
        with caster.watching.of([("run", "a")]):
            stream = asyncio.create_task(_drain(caster))
            await asyncio.sleep(0)
            await asyncio.wait_for(caster.run(), 30)
            await stream
        return asked, caster.snapshot

    asked, moment = asyncio.run(listen())
    assert asked == [(True, True), (False, True), (True, True)]
    assert moment.pulse is not None


async def _drain(caster):
    async for _ in caster.snapshots():
        pass
