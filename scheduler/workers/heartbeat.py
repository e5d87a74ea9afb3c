"""Publish the worker's liveness messages."""

import time
from contextlib import suppress

from scheduler.domain.errors import Unavailable
from scheduler.domain.handler_catalogue import HANDLERS_HEADER
from scheduler.domain.messages import ScheduleWorker
from scheduler.domain.messages.workers import BEAT_SECONDS, OFFER_TENANTS_HEADER
from scheduler.domain.worker_facts import FACTS_HEADER
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.frames import command_message
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.publisher import Publisher
from scheduler.settings import Settings
from scheduler.workers.worker import Worker

log = get_logger(__name__)
_POLL_SECONDS = 0.5
_STOPPING_POLL_SECONDS = 0.1
_SUMMARY_SECONDS = 60.0
_CATALOGUE_BEATS = 6  # the handlers' catalogue may be large: it goes with the first and every sixth message


class WorkerHeartbeat:
    """Publishes liveness messages on a separate connection, so that work does not delay them."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> None:
        self._verified = settings.tenant_by == "user_id"
        self._user_id: str | None = None
        self._stop = stop
        self._health = health
        self._worker = worker
        self._summary_due = time.monotonic() + _SUMMARY_SECONDS

    def run(self, link: Link) -> None:
        """Use one connection to the broker until it is lost or the process stops."""
        publisher = Publisher(link)
        self._user_id = link.user if self._verified else None
        due = time.monotonic()
        while not self._stop or self._worker.in_flight:
            link.check_open()
            self._health.turn()
            self._health.found("rabbitmq")
            if time.monotonic() >= due:
                due = time.monotonic() + BEAT_SECONDS
                with suppress(RabbitUnavailable):  # blocked by an alarm of the broker
                    self._publish(publisher)
                self._log_summary()
            if self._stop.wait(_POLL_SECONDS):
                time.sleep(_STOPPING_POLL_SECONDS)
        with suppress(Unavailable):
            self._publish(publisher, leaving=True, wait=1.0)

    def _publish(self, publisher: Publisher, *, leaving: bool = False, wait: float = 0.0) -> None:
        status = self._worker.status_message(leaving=leaving)
        body = status.model_dump_json(exclude_defaults=True).encode()
        key = f"{status.id}:{status.beat}"
        catalogue = self._worker.handlers if status.beat % _CATALOGUE_BEATS == 1 else None
        values = {OFFER_TENANTS_HEADER: self._worker.offer_tenants(), HANDLERS_HEADER: catalogue,
                  FACTS_HEADER: self._worker.facts()}
        headers = {name: value for name, value in values.items() if value is not None}
        message = command_message(
            ScheduleWorker.kind, ScheduleWorker.__name__, body, key=key, user_id=self._user_id,
            headers=headers or None,
        )
        publisher.send([message]).wait(wait)

    def _log_summary(self) -> None:
        if time.monotonic() >= self._summary_due:
            self._summary_due = time.monotonic() + _SUMMARY_SECONDS
            status = self._worker.status_message()
            log.info("summary", in_flight=status.in_flight, succeeded=status.succeeded, failed=status.failed,
                     snoozed=status.snoozed)
