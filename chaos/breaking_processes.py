"""Faults 1 to 3: processes killed, frozen and restarted."""

import random
import signal
import time
from contextlib import closing
from uuid import uuid4

import psycopg2

from chaos.account import Result
from chaos.faults import fault
from chaos.load import Asked
from chaos.replicas import Replica, wait_for
from chaos.world import World
from scheduler.dev.servers import Stack

TAKEOVER_SECONDS = 30.0
LEAVE_SECONDS = 5.0


@fault("kill", "kill -9 of producers and consumers, again and again")
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


@fault("freeze", "SIGSTOP of a producer in the middle of a batch, and of a consumer")
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
        wait_for(lambda: not world.sql(HOLDING), "its rows let go", TAKEOVER_SECONDS)
        result.notes.append(f"rows let go after {time.monotonic() - began:.1f} s")
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
            for each in world.supervisor.replicas:
                time.sleep(0.5)
                code, seconds = each.end(signal.SIGTERM)
                slowest = max(slowest, seconds)
                if code != 0 or seconds > LEAVE_SECONDS:
                    result.failures.append(f"{each.name} exited {code} after {seconds:.1f} s")
                wait_for(each.ready, f"{each.name} ready again", 30)
        result.notes.append(f"slowest exit {slowest:.2f} s")
        world.settle(result, within=30)
        if result.duplicates:
            result.failures.append(f"{result.duplicates} duplicates in a rolling restart")
    finally:
        world.close(result)


@fault("freeze-large", "SIGSTOP of a producer while the database sends it 100 MB of claimed rows")
def freeze_large(stack: Stack, result: Result, _: float) -> None:
    world = World(stack, one_shots=20, recurring=1, cancels=2)
    try:
        world.start()
        producer = world.producers[0]
        others = world.producers[1:]
        for each in others:
            each.send(signal.SIGSTOP)
        rows = world.sql(
            "INSERT INTO jobs (id, job_type, payload, next_run_at, starts_at) SELECT gen_random_uuid(), "
            "'chaos.large', json_build_object('x', repeat('x', 200000)), now() + interval '1 second', now() "
            "FROM generate_series(1, 400) RETURNING id::text, next_run_at"
        )
        for job_id, at in rows:
            world.host.books.asked[job_id] = Asked(job_id, [at], confirmed=True)
        stop_while_sending(world, producer)
        for each in others:
            each.send(signal.SIGCONT)
        time.sleep(1)
        stuck = bool(world.sql(SENDING))
        began = time.monotonic()
        wait_for(lambda: world.sql("SELECT FROM jobs WHERE job_type = 'chaos.large' AND status = 'done' LIMIT 1"),
                 "its rows taken over", 60)
        seconds = time.monotonic() - began
        result.notes.append(f"{'stopped while sending' if stuck else 'stopped'}, rows taken over after {seconds:.1f} s")
        if seconds > TAKEOVER_SECONDS:
            result.failures.append(f"rows held for {seconds:.1f} s")
        producer.send(signal.SIGCONT)
        world.settle(result, within=45)
        within_takeover(result)
    finally:
        world.close(result)


# Sessions of producers that hold rows and do nothing.
HOLDING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' "
    "AND application_name ~ '^scheduler producer [0-9]' AND state_change < clock_timestamp() - interval '0.2 seconds'"
)
SENDING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite' "
    "AND application_name ~ '^scheduler producer [0-9]'"
)


def stop_in_a_batch(world: World, producer: Replica) -> int:
    """Freeze the producer at a moment when it holds claimed rows; return how many it holds."""
    name = str(uuid4())[:8]
    for _ in range(40):
        # Enough rows due at once that every producer has batch after batch in its hands.
        world.sql("INSERT INTO jobs (id, job_type, next_run_at, starts_at) SELECT gen_random_uuid(), %s, "
                  "now() + interval '0.1 seconds', now() FROM generate_series(1, 1500)", f"chaos.{name}")
        time.sleep(0.12 + random.random() * 0.05)
        producer.send(signal.SIGSTOP)
        time.sleep(0.4)
        if world.sql(HOLDING):
            held = world.sql("SELECT count(*) FROM jobs WHERE status = 'pending' AND wake_at <= now()")
            return int(held[0][0])
        producer.send(signal.SIGCONT)
        time.sleep(0.2)
    raise TimeoutError("never caught the producer in the middle of a batch")


def stop_while_sending(world: World, producer: Replica) -> None:
    """Freeze the producer at a moment when the database waits for it to read on."""
    deadline = time.monotonic() + 20
    with closing(psycopg2.connect(world.database_url)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        while time.monotonic() < deadline:
            cursor.execute(SENDING)
            if cursor.fetchall():
                producer.send(signal.SIGSTOP)
                return
    raise TimeoutError("never caught the database while it was sending")


def within_takeover(result: Result) -> None:
    if result.longest_gap > TAKEOVER_SECONDS:
        result.failures.append(f"an event came {result.longest_gap:.1f} s late; others take over within 30 s")
