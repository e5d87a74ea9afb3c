"""What a worker does for webhooks: takes attempts from the queue, calls, reports, and only then acknowledges."""

import time
from contextlib import suppress

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import WEBHOOKS_QUEUE
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.link import Link
from scheduler.rabbit.work_queue import WorkQueue
from scheduler.settings import Settings
from scheduler.workers.result_publisher import ResultPublisher
from scheduler.workers.webhook.call_loop import CallLoop
from scheduler.workers.worker import Worker

log = get_logger(__name__)

OFFER = "webhooks"
FINISH_SECONDS = 3.0  # for calls in flight at a stop; the process is gone after five
_LOOK_SECONDS = 0.2
_STUCK_SECONDS = 10.0


class WebhookWorker:
    """Keeps the event loop supplied with work, through the outages of the broker; calls in flight outlive them."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> None:
        self._stop = stop
        self._health = health
        self._reporter = ResultPublisher(says_who=worker.settings.tenant_by == "user_id")
        self._loop = CallLoop(settings, worker, self._reporter)
        self._prefetch = self._loop.most_held
        worker.offer(OFFER)

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        self._loop.start()
        self._reporter.attach(link)
        try:
            queue = WorkQueue(link, WEBHOOKS_QUEUE, self._prefetch, self._loop.take, quick=True)
            while not self._stop:
                link.check_open()
                self._look(link)
                self._stop.wait(_LOOK_SECONDS)
            with suppress(Unavailable):
                queue.stop()
            self._finish(link)
        finally:
            self._reporter.detach()
            self._loop.forget_deliveries()
            if self._stop:
                self._loop.stop()

    def _look(self, link: Link) -> None:
        if time.monotonic() - self._loop.turned < _STUCK_SECONDS:
            self._health.turn()
        if link.blocked:
            self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        else:
            self._health.found("rabbitmq")
        self._reporter.turn()

    def _finish(self, link: Link) -> None:
        """Wait a while for calls in flight; what is not acknowledged then is delivered to another worker."""
        until = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < until and link.closed is None:
            if not self._loop.in_flight and self._reporter.idle:
                return
            self._reporter.turn()
            time.sleep(0.02)
        log.info("stopped before every call had ended: another worker makes them", calls=self._loop.in_flight)
