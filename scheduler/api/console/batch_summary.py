"""The jobs or runs that a bulk action changed, and their current statuses."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from scheduler.api.console.formatting import count
from scheduler.api.console.site import Site
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import NotFound
from scheduler.commands.undo_batch import UNDO
from scheduler.postgres.audit_batches import (
    MAX_COUNTED,
    BatchEntry,
    BatchHead,
    find_batch,
    job_statuses,
    list_batch,
    run_progress,
)
from scheduler.views.runs import OPEN_RUNS

FOLLOWED = 2_000  # of the oldest entries
_LISTED = 100
DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "retry": "retried", "request": "requested",
        "reinstate": "scheduled again"}


async def batch_context(site: Site, who: Identity, batch: UUID) -> dict[str, Any]:
    """Return a bulk action with the current statuses of its jobs or runs. Raises NotFound."""
    head = await batch_head(site, who, batch)
    search = site.services.database.search
    entries = await search(lambda at: list_batch(at, str(batch), who.tenant, FOLLOWED))
    of_runs = head.kind == "run"
    shown = [entry.thing for entry in entries[:_LISTED]]
    reads = site.services.reads
    statuses = await (reads.run_statuses(shown) if of_runs else search(lambda at: job_statuses(at, shown)))
    return {
        "batch": batch, "head": head, "of_runs": of_runs, "title": _title(head), "reason": head.reason,
        "entries": entries[:_LISTED], "more": head.number - len(shown), "statuses": statuses,
        "names": await (reads.run_names(shown) if of_runs else reads.job_names(shown)),
        "undoable": sum(entry.standing for entry in entries) if head.action in UNDO and not of_runs else 0,
        "followed": len(entries), **await _progress(site, entries, head),
    }


async def batch_head(site: Site, who: Identity, batch: UUID) -> BatchHead:
    """Return a bulk action that changed something of the visitor's tenant. Raises NotFound."""
    check(who, Permission.READ)
    head = await site.services.database.search(lambda at: find_batch(at, str(batch), who.tenant))
    if head is None:
        raise NotFound("No bulk action of this id has changed a job or a run.")
    return head


def _title(head: BatchHead) -> str:
    more = "At least " if head.number >= MAX_COUNTED else ""
    return f"{more}{count(head.number, head.kind)} {DONE.get(head.action, head.action)}"


async def _progress(site: Site, entries: Sequence[BatchEntry], head: BatchHead) -> dict[str, Any]:
    """Count the retried runs by status; empty for jobs."""
    ids = [entry.thing for entry in entries]
    if head.kind != "run" or not ids:
        return {"progress": None, "open": 0}
    search = site.services.database.search
    numbers = Counter(await search(lambda at: run_progress(at, ids, head.at)))
    still_open = sum(numbers[status] for status in OPEN_RUNS)
    return {"progress": sorted(numbers.items(), key=lambda pair: pair[0] in OPEN_RUNS), "open": still_open}
