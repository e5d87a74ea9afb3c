"""Consume the webhooks of its pools; acknowledge an event after its result is confirmed."""

import time
from contextlib import suppress

from scheduler.domain.errors import Unavailable
from scheduler.domain.targets.pools import NORMAL_RANK, in_pool
from scheduler.domain.targets.webhook import WebhookTarget
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.link import Link
from scheduler.rabbit.work_declaration import declare_classes, declare_work
from scheduler.rabbit.work_queue import WorkQueue
from scheduler.settings import Settings
from scheduler.workers.result_publisher import ResultPublisher
from scheduler.workers.webhook.call_loop import CallLoop
from scheduler.workers.worker import Worker

log = get_logger(__name__)

OFFER = WebhookTarget.offer or ""
FINISH_SECONDS = 3.0  # for calls in flight at a stop; the process must exit within five
_POLL_SECONDS = 0.2
_STUCK_SECONDS = 10.0


class WebhookWorker:
    """Connects the call loop to the broker; calls in flight survive a reconnect."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> None:
        self._stop = stop
        self._health = health
        self._reporter = ResultPublisher(with_user_id=worker.settings.tenant_by == "user_id")
        self._loop = CallLoop(settings, worker, self._reporter)
        self._pools = settings.worker_pools
        self._queue_type = settings.queue_type
        worker.offer(*(in_pool(OFFER, pool) for pool in self._pools))
        worker.serve(settings.worker_concurrency, self._pools)

    def run(self, link: Link) -> None:
        """Use one connection to the broker until it is lost or the process stops."""
        self._loop.start()
        self._reporter.attach(link)
        try:
            queues = self._consume(link)
            while not self._stop:
                link.check_open()
                self._check(link)
                self._stop.wait(_POLL_SECONDS)
            with suppress(Unavailable):
                for queue in queues:
                    queue.stop()
            self._finish(link)
        finally:
            self._reporter.detach()
            self._loop.forget_deliveries()
            if self._stop:
                self._loop.stop()

    def _consume(self, link: Link) -> list[WorkQueue]:
        """Consume the queues of each pool. Pools share the prefetch; the first queue is parsed without pika."""
        prefetch = max(1, self._loop.most_held // len(self._pools))
        queues: list[WorkQueue] = []
        for pool in self._pools:
            name = in_pool(WebhookTarget.queue, pool)
            if name != WebhookTarget.queue:
                declare_work(link, name, in_pool(WebhookTarget.key, pool), self._queue_type)
            ranks = declare_classes(link, WebhookTarget.queue, WebhookTarget.key, pool, self._queue_type)
            for queue_name, rank in ({name: NORMAL_RANK} | ranks).items():
                queues.append(WorkQueue(link, queue_name, prefetch, self._loop.take, quick=not queues, rank=rank))
        return queues

    def _check(self, link: Link) -> None:
        if time.monotonic() - self._loop.ticked_at < _STUCK_SECONDS:
            self._health.turn()
        if link.blocked:
            self._health.missing("rabbitmq", "its memory or disk alarm blocks publishers")
        else:
            self._health.found("rabbitmq")
        self._reporter.turn()

    def _finish(self, link: Link) -> None:
        """Wait briefly for calls in flight; the broker redelivers unacknowledged events to another worker."""
        until = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < until and link.closed is None:
            if not self._loop.in_flight and self._reporter.idle:
                return
            self._reporter.turn()
            time.sleep(0.02)
        log.info("stopped with calls in flight; another worker repeats them", calls=self._loop.in_flight)
