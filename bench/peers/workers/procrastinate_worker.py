"""procrastinate: `prepare` stores the jobs, `work` handles them."""

import sys

import common
import procrastinate
from common import METER, SETTINGS

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=common.DATABASE_URL, min_size=4, max_size=20))
publisher = common.AsyncPublisher()


@app.task(name="handle")
async def handle(due: float) -> None:
    METER.begin()
    if common.PUBLISHES:
        await publisher.publish()
    METER.end(due)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        if common.RATE:
            for due in common.due_times():
                await handle.configure(schedule_at=common.instant(due)).defer_async(due=due)
        else:
            for start in range(0, common.COUNT, 1000):
                await handle.batch_defer_async(*[{"due": common.FIRST}] * min(1000, common.COUNT - start))


async def work() -> None:
    async with app.open_async():
        if common.PUBLISHES:
            await publisher.connect()
        common.wait_for_go()
        await app.run_worker_async(
            concurrency=SETTINGS["concurrency"], delete_jobs=SETTINGS["delete_jobs"],
            fetch_job_polling_interval=SETTINGS["fetch_job_polling_interval"],
        )


common.run({"prepare": prepare, "work": work}[sys.argv[1]]())
