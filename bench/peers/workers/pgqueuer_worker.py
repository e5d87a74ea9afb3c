"""pgqueuer: `prepare` stores the jobs, `work` handles them."""

import sys
import time
from datetime import timedelta

import asyncpg
import common
from common import METER, SETTINGS
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

publisher = common.AsyncPublisher()


async def prepare() -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(common.DATABASE_URL)))
    await queries.install()
    now, times = time.time(), common.due_times()
    for start in range(0, len(times), 1000):
        part = times[start:start + 1000]
        await queries.enqueue(
            ["handle"] * len(part), [str(due).encode() for due in part], [0] * len(part),
            [timedelta(seconds=max(0.0, due - now)) for due in part],
        )


async def work() -> None:
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(common.DATABASE_URL))

    @worker.entrypoint("handle")
    async def handle(job: Job) -> None:
        METER.begin()
        if common.PUBLISHES:
            await publisher.publish()
        METER.end(float(job.payload or b"0"))

    if common.PUBLISHES:
        await publisher.connect()
    common.wait_for_go()
    await worker.run(dequeue_timeout=timedelta(seconds=SETTINGS["dequeue_timeout"]), batch_size=SETTINGS["batch_size"])


common.run({"prepare": prepare, "work": work}[sys.argv[1]]())
