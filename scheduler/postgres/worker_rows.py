"""Workers as rows: what each says of itself, and who is there."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from scheduler.domain.offer_tenants import OfferTenants
from scheduler.domain.runs.result import WorkerReport
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

# A worker that has not been heard of for so long counts as gone; it says so every ten seconds.
STALE_SECONDS = 27.0



class SeenWorker(NamedTuple):
    """A worker as it is listed; silent for too long, it is gone."""

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

    @property
    def stale(self) -> bool:
        return self.silent_seconds > STALE_SECONDS


def save_workers(cursor: Cursor, heard: Sequence[WorkerReport]) -> None:
    """Write what workers say of themselves."""
    for report in heard:
        each = report.message
        values = each.model_dump(mode="json") | {"offers": list(each.offers)}
        values["busy"] = json.dumps(values["busy"])
        values["offer_tenants"] = None if report.offer_tenants is None else json.dumps(report.offer_tenants)
        cursor.execute(query("workers/leave" if each.leaving else "workers/beat"), values)


def list_workers(cursor: Cursor) -> list[SeenWorker]:
    """List the workers that have been heard of lately, stale ones too."""
    cursor.execute(query("workers/list"))
    return [SeenWorker(*row) for row in cursor.fetchall()]
