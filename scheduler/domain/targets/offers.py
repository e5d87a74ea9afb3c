"""Offers of workers, and work that no worker offers to do."""

from collections.abc import Collection
from typing import NamedTuple

from scheduler.domain.targets.pools import in_pool, split_pool
from scheduler.domain.targets.target import target_of_key

# Prefix of the error if a worker may not call a webhook's address; another worker may be allowed to.
REFUSED = "refused: "


class LiveWorker(NamedTuple):
    """A live worker: its name as in its results, and its offers."""

    name: str
    offers: Collection[str]


def offer_of(work: str) -> str | None:
    """Return the offer of the workers that do work with this routing key; None if it is not known."""
    target = target_of_key(work)
    if target is None:
        return None
    if target.by_name:
        return work
    return None if target.offer is None else in_pool(target.offer, split_pool(work)[1])


def is_unoffered(work: str | None, offered: Collection[str]) -> bool:
    """Return whether none of these offers is for the work."""
    offer = None if work is None else offer_of(work)
    return offer is not None and offer not in offered


def no_worker(work: str) -> str:
    """Return the problem of work that no worker offers."""
    target = target_of_key(work)
    if target is None:
        return f"no worker does {work}"
    name, pool = split_pool(work.removeprefix(target.key) if target.by_name else work)
    what = f"the {target.kind} {name}" if target.by_name else f"{target.kind}s"
    return f"no worker{'' if pool is None else f' of the pool {pool}'} offers {what}"
