"""APScheduler with its SQLAlchemy store on Postgres: `prepare` stores the jobs, `work` handles them."""

import sys
import time

import common
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from common import METER, SETTINGS

publisher = common.BlockingPublisher()


def handle(due: float) -> None:
    METER.begin()
    if common.PUBLISHES:
        publisher.publish()
    METER.end(due)


def scheduler() -> BackgroundScheduler:
    store = SQLAlchemyJobStore(url=common.DATABASE_URL.replace("postgres://", "postgresql://"))
    return BackgroundScheduler(
        jobstores={"default": store}, executors={"default": ThreadPoolExecutor(SETTINGS["max_workers"])},
        job_defaults={"misfire_grace_time": None}, timezone="UTC",
    )


def prepare() -> None:
    storing = scheduler()
    storing.start(paused=True)
    for due in common.due_times():
        storing.add_job("apscheduler_worker:handle", "date", run_date=common.instant(due), args=(due,))


def work() -> None:
    sys.modules["apscheduler_worker"] = sys.modules["__main__"]
    working = scheduler()
    common.wait_for_go()
    working.start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    {"prepare": prepare, "work": work}[sys.argv[1]]()
