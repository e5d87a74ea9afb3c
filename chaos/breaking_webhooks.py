"""Kill and freeze workers while 500 endpoints respond, fail and hang at random."""

import asyncio
import json
import random
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import Stack

ENDPOINTS = 500
TIMEOUT_SECONDS = 2
POLICY = {"max_attempts": 4, "backoff": "fixed", "delay": 0.5, "timeout": 20, "start_timeout": 120}
FROZEN_SECONDS = 25.0  # beyond the broker's heartbeats, so that others get its calls


class Endpoints:
    """A server on every loopback address. Each address is an endpoint with random behaviour."""

    def __init__(self, seed: int = 15) -> None:
        self.calls: Counter[tuple[str, int, str]] = Counter()  # by event_id, attempt and emitted_at
        self.succeeded: set[str] = set()
        self._chance = random.Random(seed)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()
        self._ready.wait(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_forever()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "0.0.0.0", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                event = json.loads(await reader.readexactly(size))
                event_id = event["event_id"]
                self.calls[event_id, event["run"]["attempt"], event["emitted_at"]] += 1
                fate = self._chance.random()
                if fate < 0.1:
                    await reader.read(1)  # hang until the caller disconnects
                    break
                if fate < 0.2:
                    break
                status = b"500 No" if fate < 0.4 else b"200 OK"
                if fate >= 0.4:
                    self.succeeded.add(event_id)
                await asyncio.sleep(self._chance.random() * 0.2)
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def url(self, number: int) -> str:
        return f"http://127.1.{number // 250}.{1 + number % 250}:{self.port}/"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


@fault("webhooks", "workers killed and frozen while 500 endpoints respond, fail and hang")
def webhooks(stack: Stack, result: Result, scale: float) -> None:
    endpoints = Endpoints()
    world = World(stack, consumers=1, producers=2, workers=3, env={"SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8"},
                  one_shots=0, recurring=0, cancels=0)
    try:
        world.start()
        jobs = ask(world, endpoints, round(1500 * scale), 20 * scale)
        break_workers(world, result, 24 * scale)
        check(world, endpoints, result, jobs)
    finally:
        world.close(result)
        endpoints.close()


def ask(world: World, endpoints: Endpoints, count: int, seconds: float) -> set[str]:
    """Request `count` calls over `seconds`, to all endpoints in turn."""
    start, jobs = datetime.now(UTC) + timedelta(seconds=2), set()
    for number in range(count):
        job = str(uuid4())
        jobs.add(job)
        webhook = {"url": endpoints.url(number % ENDPOINTS), "timeout": TIMEOUT_SECONDS}
        world.host.command("request", json.dumps({
            "id": job, "job_type": "chaos.webhook", "run": POLICY, "target": {"webhook": webhook},
            "run_at": (start + timedelta(seconds=seconds * number / count)).isoformat(),
        }).encode(), None)
    return jobs


def break_workers(world: World, result: Result, seconds: float) -> None:
    """Kill workers repeatedly, and freeze one for longer than the broker's heartbeat."""
    chance = random.Random(3)
    workers = world.supervisor.by_role("worker")
    kills, end = 0, time.monotonic() + seconds
    frozen, thaw = workers[0], time.monotonic() + min(FROZEN_SECONDS, seconds)
    time.sleep(4)
    frozen.send(signal.SIGSTOP)
    while time.monotonic() < max(end, thaw):
        victim = chance.choice(workers[1:])
        if victim.running:
            victim.end(signal.SIGKILL)
            kills += 1
        time.sleep(chance.uniform(1, 3))
    frozen.send(signal.SIGCONT)
    result.notes.append(f"{kills} kills, one worker frozen for {thaw - end + seconds:.0f} s or more")


def check(world: World, endpoints: Endpoints, result: Result, jobs: set[str]) -> None:
    """Check that every run ended correctly: succeeded if an endpoint returned 200, dead after its last attempt."""
    ended = "SELECT job_id::text, event_id::text, status::text, attempts FROM run_history"
    try:
        wait_for(lambda: len(world.sql(ended)) >= len(jobs), "every run ended", 120)
    except TimeoutError as error:
        result.failures.append(str(error))
    rows = world.sql(ended)
    result.requests, result.expected, result.received = len(jobs), len(jobs), len({row[0] for row in rows})
    result.lost = len(jobs - {row[0] for row in rows})
    outcomes: Counter[str] = Counter()
    for _, event_id, status, attempts in rows:
        outcomes[status] += 1
        counted = [attempt["outcome"] for attempt in attempts if attempt["outcome"] not in ("snoozed", "succeeded")]
        if status == "succeeded" and event_id not in endpoints.succeeded:
            result.failures.append(f"{event_id} succeeded without a 200 response")
        if status == "dead" and len(counted) < POLICY["max_attempts"]:
            result.failures.append(f"{event_id} dead after {counted}")
        if len(counted) > POLICY["max_attempts"]:
            result.failures.append(f"{event_id} has too many attempts: {counted}")
    # A worker that dies after a call leaves its event to another, which calls again: one attempt, two calls.
    result.duplicates = sum(endpoints.calls.values()) - len(endpoints.calls)
    result.notes.append(f"{sum(endpoints.calls.values()):,} calls; " +
                        ", ".join(f"{count:,} {status}" for status, count in sorted(outcomes.items())))
    result.failures += world.supervisor.crashes
