"""Rates and percentiles for the last seconds, from the process's own metrics."""

import pytest

from scheduler.ops import metrics
from scheduler.ops.recent_activity import RecentActivity, percentile

BUCKETS = len(metrics.LAG_BUCKETS) + 1


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_what_was_done_since_the_oldest_snapshot():
    clock = Clock()
    recent = RecentActivity(size=2, clock=clock)
    metrics.jobs_due.inc(5)
    clock.now += 5
    recent.advance()
    metrics.jobs_due.inc(3)
    metrics.due_lag.observe(0.004)
    clock.now += 5
    assert (recent.since()["due"], recent.since()["seconds"]) == (8, 10.0)
    recent.advance()
    found = recent.since()
    assert (found["due"], found["seconds"]) == (3, 5.0)
    assert sum(found["lag"]) == 1
    assert len(found["lag"]) == BUCKETS


def test_percentiles_lie_within_the_bucket_that_holds_them():
    counts = [0] * BUCKETS
    assert percentile(0.5, counts) is None
    counts[3] = 100  # 3 to 4 ms
    assert percentile(0.5, counts) == pytest.approx(0.0035)
    counts[13] = 2  # 250 to 500 ms
    assert 0.25 < percentile(0.99, counts) < 0.5
    counts[-1] = 1000  # beyond an hour
    assert percentile(0.99, counts) == 3600.0


def test_no_metric_label_comes_from_a_message():
    labels = {
        name: metric._labelnames for name, metric in vars(metrics).items() if hasattr(metric, "_labelnames")
    }
    assert {label for names in labels.values() for label in names} <= {
        "command",  # as the worker's own file names it
        "class", "dependency", "outcome", "phase", "python", "reason", "receipt", "role",
        "route", "status", "tzdata", "version",
    }
