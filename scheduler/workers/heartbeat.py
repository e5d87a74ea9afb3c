"""Says every ten seconds that this worker lives, and what it does."""

import time
from contextlib import suppress

from scheduler.domain.errors import Unavailable
from scheduler.domain.messages import ScheduleWorker
from scheduler.domain.messages.workers import BEAT_SECONDS, OFFER_TENANTS_HEADER
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.frames import command_message
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.publisher import Publisher
from scheduler.settings import Settings
from scheduler.workers.worker import Worker

log = get_logger(__name__)
_LOOK_SECONDS = 0.5
_LAST_LOOK_SECONDS = 0.1
_SUMMARY_SECONDS = 60.0


class WorkerHeartbeat:
    """The sign of life, on a connection of its own: no amount of work delays it."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> None:
        self._verified = settings.tenant_by == "user_id"
        self._user_id: str | None = None
        self._stop = stop
        self._health = health
        self._worker = worker
        self._summary_due = time.monotonic() + _SUMMARY_SECONDS

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        publisher = Publisher(link)
        self._user_id = link.user if self._verified else None
        due = time.monotonic()
        while not self._stop or self._worker.in_flight:
            link.check_open()
            self._health.turn()
            self._health.found("rabbitmq")
            if time.monotonic() >= due:
                due = time.monotonic() + BEAT_SECONDS
                with suppress(RabbitUnavailable):  # blocked over its alarm, which passes
                    self._say(publisher)
                self._summarise()
            if self._stop.wait(_LOOK_SECONDS):
                time.sleep(_LAST_LOOK_SECONDS)
        with suppress(Unavailable):
            self._say(publisher, leaving=True, wait=1.0)

    def _say(self, publisher: Publisher, *, leaving: bool = False, wait: float = 0.0) -> None:
        said = self._worker.says(leaving=leaving)
        body = said.model_dump_json(exclude_defaults=True).encode()
        key = f"{said.id}:{said.beat}"
        tenants = self._worker.offer_tenants()
        headers = None if tenants is None else {OFFER_TENANTS_HEADER: tenants}
        message = command_message(
            ScheduleWorker.kind, ScheduleWorker.__name__, body, key=key, user_id=self._user_id, headers=headers
        )
        publisher.send([message]).wait(wait)

    def _summarise(self) -> None:
        if time.monotonic() >= self._summary_due:
            self._summary_due = time.monotonic() + _SUMMARY_SECONDS
            said = self._worker.says()
            log.info("summary", in_flight=said.in_flight, succeeded=said.succeeded, failed=said.failed,
                     snoozed=said.snoozed)
