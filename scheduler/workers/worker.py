"""Identity, offers and current work of a worker process."""

import os
import platform
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Protocol
from uuid import UUID, uuid4

from scheduler import __version__
from scheduler.domain.messages import Busy, ResultStatus, ScheduleWorker
from scheduler.domain.messages.workers import MAX_BUSY, MAX_OFFERS
from scheduler.domain.offer_tenants import ALL_TENANTS, write_offer_tenants
from scheduler.domain.worker_facts import WorkerFacts
from scheduler.settings import Settings
from scheduler.workers.outcome import WorkOutcome

_CHARACTERS = 200
_PLATFORM = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"[:_CHARACTERS]


class Keyed(Protocol):
    """An attempt with its event's id and its number."""

    @property
    def key(self) -> tuple[str, int]: ...


class Worker:
    """The state that all parts of a worker process share. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.id = uuid4()
        self.host = socket.gethostname()[:_CHARACTERS]
        self.pid = os.getpid()
        self.started_at = datetime.now(UTC)
        self.name = f"{self.host}:{self.pid}"[:_CHARACTERS]  # in results; same form as a Runner's
        self._lock = threading.Lock()
        self._offers: list[str] = []
        self._offer_tenants: dict[str, frozenset[str]] = {}
        self._busy: dict[tuple[str, int], tuple[str, datetime]] = {}  # endpoint or command, and start time
        self._ended = dict.fromkeys(ResultStatus, 0)
        self._beat = 0
        self.handlers: str | None = None  # the catalogue of its handlers
        self._pools: list[str] = []
        self._capacity = 0

    def offer(self, *names: str, tenants: frozenset[str] | None = None) -> None:
        """Add offers: `webhooks`, `command.NAME`, each with `.POOL`, `handler.JOB_TYPE`; and their tenants."""
        with self._lock:
            self._offers = list(dict.fromkeys((*self._offers, *names)))
            if tenants is not None and ALL_TENANTS not in tenants:
                self._offer_tenants |= dict.fromkeys(names, tenants)

    def serve(self, capacity: int, pools: Sequence[str] = ()) -> None:
        """Add attempts that it runs at a time, and pools whose work it takes."""
        with self._lock:
            self._capacity += capacity
            self._pools = list(dict.fromkeys((*self._pools, *pools)))

    def facts(self) -> str:
        """Return the header with its platform, pools and capacity."""
        with self._lock:
            facts = WorkerFacts(platform=_PLATFORM, pools=tuple(self._pools), capacity=self._capacity)
        return facts.model_dump_json()

    def offer_tenants(self) -> str | None:
        """Return the header with the tenants of each offer; None if every tenant may use all of them."""
        with self._lock:
            return write_offer_tenants(self._offers[:MAX_OFFERS], self._offer_tenants)

    def begin(self, attempt: Keyed, what: str, since: datetime) -> None:
        """Record the start of an attempt; `what` is a webhook's host, a command's name or a handler's type."""
        with self._lock:
            self._busy[attempt.key] = what, since

    def end(self, attempt: Keyed, outcome: WorkOutcome | None) -> None:
        """Record the outcome of an attempt, even if it did not start; None if another worker has the run."""
        with self._lock:
            self._busy.pop(attempt.key, None)
            if outcome is not None:
                self._ended[outcome.status] += 1

    @property
    def in_flight(self) -> int:
        return len(self._busy)

    def status_message(self, *, leaving: bool = False) -> ScheduleWorker:
        """Return the next liveness message."""
        with self._lock:
            self._beat += 1
            longest = [
                Busy(event_id=UUID(event_id), attempt=number, what=what[:_CHARACTERS], since=since)
                for (event_id, number), (what, since) in islice(self._busy.items(), MAX_BUSY)  # oldest first
            ]
            return ScheduleWorker(
                id=self.id, host=self.host, pid=self.pid, version=__version__, started_at=self.started_at,
                offers=tuple(self._offers[:MAX_OFFERS]), in_flight=len(self._busy), busy=tuple(longest),
                succeeded=self._ended[ResultStatus.SUCCEEDED], failed=self._ended[ResultStatus.FAILED],
                snoozed=self._ended[ResultStatus.SNOOZED], beat=self._beat, leaving=leaving,
            )
