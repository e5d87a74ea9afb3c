"""Drain a backlog of all priority classes while producers are killed. Higher classes must come first."""

import random
import signal
import statistics
import time
from datetime import UTC, datetime, timedelta

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import Stack

CLASSES = ("high", "normal", "low")


@fault("mixed-backlog", "many jobs of every class due at once, drained while producers are killed")
def mixed_backlog(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack, env={"SCHEDULER_BATCH_SIZE": "90"}, one_shots=10, recurring=1, cancels=2)
    try:
        world.start()
        jobs_per_class = max(200, int(2000 * scale))
        due = datetime.now(UTC) + timedelta(seconds=6 + 14 * scale)
        classes = {
            world.host.request(due, priority=CLASSES[n % 3]).id: CLASSES[n % 3] for n in range(3 * jobs_per_class)
        }
        wait_for(lambda: not world.host.outstanding, "the backlog sent", 120)
        chance, kills = random.Random(14), 0
        while datetime.now(UTC) < due + timedelta(seconds=12 * scale):
            if datetime.now(UTC) > due:
                chance.choice(world.producers).end(signal.SIGKILL)
                kills += 1
            time.sleep(chance.uniform(0.3, 1.2))
        result.notes.append(f"{kills} kills over {jobs_per_class:,} jobs of each class")
        world.settle(result, within=60)
        received = {name: [] for name in CLASSES}
        for event in world.host.records.events:
            if event.job_id in classes:
                received[classes[event.job_id]].append(event.received_at.timestamp())
        middle = {name: statistics.median(moments) - due.timestamp() for name, moments in received.items()}
        result.notes.append("half of each class emitted after " + ", ".join(f"{name} {at:.1f} s" for name, at in middle.items()))
        if not middle["high"] <= middle["normal"] <= middle["low"]:
            result.failures.append(f"higher classes were not emitted first: {middle}")
    finally:
        world.close(result)
