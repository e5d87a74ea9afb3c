"""Store worker reports and list workers."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from scheduler.domain.offer_tenants import OfferTenants
from scheduler.domain.runs.result import WorkerReport
from scheduler.domain.targets.offers import LiveWorker, is_unoffered
from scheduler.domain.worker_facts import WorkerFacts
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

# A worker without a heartbeat for this long is stale; it sends one every ten seconds.
STALE_SECONDS = 27.0
RUNS_MEASURED = 10_000  # open runs that are searched for unstarted work
UNSTARTED_SECONDS = 10.0  # work without a worker for this long is a problem; a worker that starts takes a while


class SeenWorker(NamedTuple):
    """A listed worker."""

    id: str
    host: str
    pid: int
    version: str
    up_seconds: float
    silent_seconds: float
    offers: list[str]
    in_flight: int
    busy: list[dict[str, Any]]
    succeeded: int
    failed: int
    snoozed: int
    offer_tenants: OfferTenants | None = None
    platform: str | None = None
    pools: list[str] | None = None
    capacity: int | None = None

    @property
    def stale(self) -> bool:
        return self.silent_seconds > STALE_SECONDS


def save_workers(cursor: Cursor, reports: Sequence[WorkerReport]) -> None:
    """Store worker reports."""
    for report in reports:
        message = report.message
        values = message.model_dump(mode="json") | {"offers": list(message.offers)}
        values["busy"] = json.dumps(values["busy"])
        values["offer_tenants"] = None if report.offer_tenants is None else json.dumps(report.offer_tenants)
        values["handlers"] = report.handlers
        facts = report.facts or WorkerFacts()
        values |= {"platform": facts.platform, "pools": list(facts.pools), "capacity": facts.capacity}
        cursor.execute(query("workers/leave" if message.leaving else "workers/beat"), values)


def list_handlers(cursor: Cursor) -> list[list[dict[str, Any]]]:
    """List the handler catalogues of live workers."""
    cursor.execute(query("workers/handlers"), (STALE_SECONDS,))
    return [handlers for (handlers,) in cursor.fetchall()]


LIVE_OFFERS = query("workers/live_offers"), {"stale_after": STALE_SECONDS}


def list_live_offers(cursor: Cursor) -> list[LiveWorker]:
    """List the live workers with their offers."""
    cursor.execute(*LIVE_OFFERS)
    return [LiveWorker(*row) for row in cursor.fetchall()]


class UnstartedWork(NamedTuple):
    """Attempts whose work no live worker offers, and the seconds that the oldest unstarted attempt has waited."""

    unoffered: int = 0
    longest: float = 0.0


def measure_work(cursor: Cursor) -> UnstartedWork:
    """Measure the work that no worker has started, from a limited number of open runs."""
    cursor.execute(query("workers/unstarted_work"), {"most": RUNS_MEASURED})
    unstarted = cursor.fetchall()
    if not unstarted:
        return UnstartedWork()
    offered = {offer for worker in list_live_offers(cursor) for offer in worker.offers}
    unoffered = sum(count for work, count, longest in unstarted
                    if longest > UNSTARTED_SECONDS and is_unoffered(work, offered))
    return UnstartedWork(unoffered, max(longest for _, _, longest in unstarted))


def list_workers(cursor: Cursor) -> list[SeenWorker]:
    """List recent workers, including stale ones."""
    cursor.execute(query("workers/list"))
    return [SeenWorker(*row) for row in cursor.fetchall()]
