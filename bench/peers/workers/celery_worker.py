"""Celery with eta on RabbitMQ: `prepare` sends the tasks, `work` handles them."""

import sys

import celery
import common
from celery import signals
from common import METER, SETTINGS

app = celery.Celery("peer", broker=common.AMQP_URL)
app.conf.update(
    task_ignore_result=True, worker_prefetch_multiplier=SETTINGS["prefetch_multiplier"], worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True, worker_send_task_events=False,
    worker_disable_rate_limits=True, broker_pool_limit=2,
)
publisher = common.BlockingPublisher()


@app.task(name="handle")
def handle(due: float) -> None:
    METER.begin()
    if common.PUBLISHES:
        publisher.publish()
    METER.end(due)


@signals.worker_init.connect
def _gate(**_: object) -> None:
    common.wait_for_go()


@signals.worker_process_init.connect
def _connect(**_: object) -> None:
    if common.PUBLISHES:
        publisher.connect()


def prepare() -> None:
    with app.producer_pool.acquire() as producer:
        for due in common.due_times():
            handle.apply_async((due,), eta=common.instant(due), producer=producer)


def work() -> None:
    app.worker_main([
        "worker", "-P", SETTINGS["pool"], "-c", str(SETTINGS["concurrency"]), "-l", "ERROR", "-n", f"{sys.argv[2]}@peer",
        "--without-gossip", "--without-mingle", "--without-heartbeat", *(["-O", "fair"] if SETTINGS.get("fair") else []),
    ])


{"prepare": prepare, "work": work}[sys.argv[1]]()
