"""A batch between its claim and its settlement, without any server."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from scheduler import flight
from scheduler.domain.emission import DueJob
from scheduler.postgres.claims import Claim
from scheduler.rabbit.publisher import Receipt

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


def due(number):
    empty = {each.name: None for each in fields(DueJob)}
    return DueJob(**empty | {
        "id": f"00000000-0000-0000-0000-00000000000{number}", "job_type": "test.job", "payload": "{}",
        "timezone": "UTC", "on_missed": "latest", "next_run_at": NOW, "occurrence": 0, "retries": 0,
        "triggers": [], "wake_at": NOW,
    })


class Lane:
    def claim(self, _limit, _floor):
        return Claim([due(number) for number in range(3)], NOW + timedelta(seconds=1), None)

    def settle(self, outcome):
        self.settled = outcome


class Publisher:
    """Confirms whatever it is given."""

    def send(self, messages):
        self.sent = len(messages)
        return self

    def wait(self, _timeout):
        return [Receipt.CONFIRMED] * self.sent


@pytest.mark.parametrize(("seconds", "emitted"), [(inf, 3), (0.0, 1)])
def test_what_takes_too_long_to_decide_is_left_due_and_the_rest_is_emitted(monkeypatch, seconds, emitted):
    monkeypatch.setattr(flight, "DECIDE_SECONDS", seconds)
    lane = Lane()
    batch = flight.Flight(lane, 500)
    batch.take_off(Publisher())
    batch.land()
    assert len(lane.settled.done) == emitted
    assert batch.leaves_due == (emitted < 3)
