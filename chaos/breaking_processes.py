"""Process faults: killed, frozen and restarted."""

import random
import signal
import time
from uuid import uuid4

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import Replica, wait_for
from chaos.world import World
from scheduler.dev.servers import Stack

TAKEOVER_SECONDS = 30.0
NOTICE_SECONDS = 60.0
LEAVE_SECONDS = 5.0


@fault("kill", "kill -9 of producers and consumers, repeatedly")
def kill(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        time.sleep(2)
        chance = random.Random(1)
        kills = 0
        end = time.monotonic() + 24 * scale
        while time.monotonic() < end:
            victim = chance.choice(world.supervisor.replicas)
            if victim.running:
                victim.end(signal.SIGKILL)
                kills += 1
            time.sleep(chance.uniform(0.5, 2.5))
        result.notes.append(f"{kills} kills")
        time.sleep(2)
        world.settle(result, within=45)
        within_takeover(result)
    finally:
        world.close(result)


@fault("freeze", "SIGSTOP of a producer within a batch and of a consumer")
def freeze(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        time.sleep(2)
        producer, consumer = world.producers[0], world.consumers[0]
        held = stop_in_a_batch(world, producer)
        result.notes.append(f"frozen with {held} rows held")
        if scale >= 1:
            consumer.send(signal.SIGSTOP)
        began = time.monotonic()
        wait_for(lambda: not world.sql(HOLDING), "its rows released", TAKEOVER_SECONDS)
        result.notes.append(f"rows released after {time.monotonic() - began:.1f} s")
        time.sleep(max(0.0, 22 * scale - (time.monotonic() - began)))
        producer.send(signal.SIGCONT)
        consumer.send(signal.SIGCONT)
        time.sleep(3)
        world.settle(result, within=45)
        within_takeover(result)
    finally:
        world.close(result)


@fault("rolling-restart", "SIGTERM rolling restart of every process")
def rolling_restart(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        slowest = 0.0
        for _ in range(2 if scale >= 1 else 1):
            for replica in world.supervisor.replicas:
                time.sleep(0.5)
                code, seconds = replica.end(signal.SIGTERM)
                slowest = max(slowest, seconds)
                if code != 0 or seconds > LEAVE_SECONDS:
                    result.failures.append(f"{replica.name} exited {code} after {seconds:.1f} s")
                wait_for(replica.ready, f"{replica.name} ready again", 30)
        result.notes.append(f"slowest exit {slowest:.2f} s")
        world.settle(result, within=30)
        if result.duplicates:
            result.failures.append(f"{result.duplicates} duplicates in a rolling restart")
    finally:
        world.close(result)


# Idle producer sessions that hold rows.
HOLDING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' "
    "AND application_name ~ '^scheduler producer [0-9]' AND state_change < clock_timestamp() - interval '0.2 seconds'"
)


def stop_in_a_batch(world: World, producer: Replica) -> int:
    """Freeze the producer while it holds claimed rows; return their number."""
    name = str(uuid4())[:8]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        # Enough due rows that every producer claims several batches.
        world.sql("INSERT INTO jobs (id, job_type, next_run_at, starts_at) SELECT gen_random_uuid(), %s, "
                  "now() + interval '0.1 seconds', now() FROM generate_series(1, 1500)", f"chaos.{name}")
        time.sleep(0.1 + random.random() * 0.2)  # a busy machine claims them later
        producer.send(signal.SIGSTOP)
        time.sleep(0.4)
        if world.sql(HOLDING):
            held = world.sql("SELECT count(*) FROM jobs WHERE status = 'pending' AND wake_at <= now()")
            return int(held[0][0])
        producer.send(signal.SIGCONT)
        time.sleep(0.2)
    raise TimeoutError("could not freeze the producer within a batch")


def within_takeover(result: Result) -> None:
    """Check that rows are delayed by at most 30 s once they are stored and due."""
    if result.longest_takeover > TAKEOVER_SECONDS:
        result.failures.append(f"a row waited {result.longest_takeover:.1f} s; others take over within 30 s")
    if result.slowest_command > NOTICE_SECONDS:
        result.failures.append(f"a command waited {result.slowest_command:.1f} s to be stored")
