"""Activity of this process in the last seconds and the last minute, computed from its metrics."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from scheduler.ops import metrics

_COUNTERS: dict[str, MetricWrapperBase] = {
    "queued": metrics.jobs_queued,
    "cancelled": metrics.jobs_cancelled,
    "due": metrics.jobs_due,
    "missed": metrics.jobs_missed,
    "rejected": metrics.commands_rejected,
    "failures": metrics.publish_failures,
    "pruned": metrics.pruned,
    "runs_succeeded": metrics.runs.labels("succeeded"),
    "runs_dead": metrics.runs.labels("dead"),
}


class RecentActivity:
    """Snapshots of the counters, and the difference between now and the oldest snapshot."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._snapshots: deque[tuple[float, dict[str, int], list[int]]] = deque(maxlen=size)
        self.advance()

    def advance(self) -> None:
        """Take a snapshot and drop the oldest if there are too many."""
        self._snapshots.append((self._clock(), _counts(), _lags()))

    def since(self) -> dict[str, Any]:
        """Return the counts since the oldest snapshot, and its age in seconds."""
        then, counts, lags = self._snapshots[0]
        done: dict[str, Any] = {name: value - counts[name] for name, value in _counts().items()}
        done["lag"] = [new - old for new, old in zip(_lags(), lags, strict=True)]
        return done | {"seconds": round(max(self._clock() - then, 0.001), 3)}


def percentile(share: float, counts: Sequence[int]) -> float | None:
    """Return the lag in seconds that `share` of the events did not exceed, or None without events.

    `counts` has one number for each bucket of the lag's histogram; within a bucket events count as evenly
    spread, and beyond the last bound the bound itself is returned.
    """
    sums = list(accumulate(counts))
    if not sums or not sums[-1]:
        return None
    rank = share * sums[-1]
    index = bisect_left(sums, rank)
    if index >= len(metrics.LAG_BUCKETS):
        return float(metrics.LAG_BUCKETS[-1])
    low = metrics.LAG_BUCKETS[index - 1] if index else 0.0
    below = sums[index - 1] if index else 0
    return float(low + (metrics.LAG_BUCKETS[index] - low) * (rank - below) / counts[index])


def _counts() -> dict[str, int]:
    return {name: int(_total(metric.collect())) for name, metric in _COUNTERS.items()}


def _total(families: Iterable[Any]) -> float:
    return float(sum(sample.value for family in families for sample in family.samples))


def _lags() -> list[int]:
    sums = [
        int(sample.value)
        for family in metrics.due_lag.collect()
        for sample in family.samples
        if sample.name.endswith("_bucket")
    ]
    return [total - before for before, total in zip([0, *sums], sums, strict=False)]
