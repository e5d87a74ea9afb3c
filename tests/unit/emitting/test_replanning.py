"""Jobs that are planned again stay locked until the commit, so a batch of costly ones ends early."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from scheduler.emitting import replanning
from scheduler.emitting.replanning import plan_part

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(("seconds", "planned"), [(60, "abc"), (-1, "a")])
def test_a_batch_ends_after_its_seconds_of_planning_but_plans_at_least_one_job(monkeypatch, seconds, planned):
    monkeypatch.setattr(replanning, "PART_SECONDS", seconds)
    change = SimpleNamespace(plan=lambda job, now: (job, now))
    assert list(plan_part(change, "abc", NOW)) == [(job, (job, NOW)) for job in planned]
