"""A batch with costly rules is stored in parts, in order, and each part reports the consumer's liveness."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from scheduler.commands import store_batches
from scheduler.commands.store_batches import BatchStore, split_batch
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleCancel, ScheduleRequest
from scheduler.domain.recurrence import Spec
from scheduler.processes.runtime import Stop


def request(**fields):
    command = ScheduleRequest(id=uuid4(), job_type="a", **fields)
    return Incoming(command, str(command.id))


def rule(text="FREQ=DAILY", run_at="2026-12-01T09:00:00Z"):
    return request(rrule=text, run_at=run_at)


def cancel():
    command = ScheduleCancel(id=uuid4())
    return Incoming(command, str(command.id))


def test_a_cheap_batch_is_one_part():
    batch = [request(run_at="2026-12-01T09:00:00Z"), cancel(), rule(), rule("FREQ=WEEKLY;BYDAY=MO")]
    assert list(split_batch(batch)) == [batch]
    assert [type(incoming.schedule) for incoming in batch] == [type(None), type(None), Spec, Spec]


def test_a_part_ends_after_a_costly_rule(monkeypatch):
    monkeypatch.setattr(store_batches, "PART_SECONDS", -1)
    batch = [cancel(), rule(), request(rrule="FREQ=DAILY"), rule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"), cancel()]
    assert list(split_batch(batch)) == [batch[:2], batch[2:4], batch[4:]]
    assert batch[2].schedule is None  # it starts when it is stored
    assert isinstance(batch[3].schedule, Rejected)


def test_each_part_reports_liveness(monkeypatch):
    monkeypatch.setattr(store_batches, "PART_SECONDS", -1)
    calls = []
    health = SimpleNamespace(turn=lambda: calls.append("turn"), found=lambda _: None, missing=lambda *_: None)
    session = SimpleNamespace(
        execute=lambda batch, _: calls.append(len(batch)) or [incoming.about for incoming in batch]
    )
    batch = [rule(), cancel(), rule(), cancel()]
    stored = BatchStore(SimpleNamespace(poll_interval_ms=500), Stop(), health).store(session, batch, lambda: None)
    assert stored is not None
    assert stored.outcomes == [incoming.about for incoming in batch]
    assert calls == [1, "turn", 2, "turn", 1, "turn"]


@pytest.mark.parametrize("start", [{"run_at": "2026-12-01T09:00:00Z"}, {}])
def test_a_start_in_the_rule_counts_as_given(start):
    given = request(rrule="DTSTART:20261201T090000Z\nRRULE:FREQ=DAILY", **start)
    assert list(split_batch([given])) == [[given]]
    assert isinstance(given.schedule, Spec)
