"""Which reads a replica may serve, from positions in the write-ahead log."""

import math

import pytest

from scheduler.api import read_replica
from scheduler.api.read_replica import ReplicaFreshness


@pytest.fixture
def replica():
    return ReplicaFreshness(max_lag=10)


def test_an_idle_primary_makes_no_lag(replica):
    assert not replica.serves("anyone", 0.0)
    for second in range(100):
        replica.compared(second, 500, 500)
    assert replica.lag() == 0
    assert replica.serves("anyone", 99.5)
    assert not replica.serves("anyone", 104.0)  # no comparison since


def test_lag_is_the_age_of_the_newest_moment_that_the_replica_has_reached(replica):
    replica.compared(0.0, 100, 100)
    for second in range(1, 12):
        replica.compared(second, 100 + second, 103)
    assert replica.lag() == 11 - 3
    assert replica.serves("anyone", 11.0)
    replica.compared(14.0, 200, 103)
    assert not replica.serves("anyone", 14.0)
    replica.compared(15.0, 200, math.inf)  # DATABASE_READ_URL leads to the primary
    assert replica.serves("anyone", 15.0)


def test_a_writer_waits_until_the_replica_has_the_change(replica, monkeypatch):
    monkeypatch.setattr(read_replica, "_MAX_WRITERS", 1)
    replica.compared(0.0, 100, 100)
    replica.wrote("a", 0.5)
    assert replica.serves("b", 0.6)
    assert not replica.serves("a", 0.6)
    replica.compared(1.0, 150, 120)
    assert not replica.serves("a", 1.1)
    replica.wrote("b", 1.2)  # nobody remembers who "a" was: it could be anyone
    assert not replica.serves("c", 1.3)
    replica.compared(2.0, 150, 150)
    assert replica.serves("a", 2.1)
    assert replica.serves("b", 2.1)


def test_a_failed_read_ends_the_use_until_the_next_comparison(replica):
    replica.compared(0.0, 100, 100)
    replica.lost()
    assert not replica.serves("anyone", 0.1)
    assert replica.lag() == math.inf
    replica.compared(1.0, 100, 100)
    assert replica.serves("anyone", 1.1)
