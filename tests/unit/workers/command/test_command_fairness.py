"""Turns of a shared command on a settable clock."""

import pytest

from scheduler.workers.command.fairness import CROWDED, FIRST_SECONDS, OTHERS_SECONDS, TenantQueues


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_tenant_with_the_fewest_running_commands_is_next(clock):
    turns = TenantQueues(7, clock)
    for number in range(4):
        turns.add("a", f"a{number}")
    turns.add("b", "b0")
    turns.add("c", "c0")
    tickets, order = [], []
    while (turn := turns.next()) is not None:
        tickets.append(turn[0])
        order.append(turn[1])
    assert order == ["a0", "b0", "c0", "a1", "a2", "a3"]
    for ticket in tickets:
        turns.end(ticket)
    assert turns.next() is None


def test_the_last_free_slot_is_for_a_tenant_with_no_running_command(clock):
    turns = TenantQueues(3, clock)
    for number in range(3):
        turns.add("a", f"a{number}")
    tickets = [turns.next()[0], turns.next()[0]]
    assert turns.next() is None
    turns.add("b", "b0")
    turns.add("b", "b1")
    tickets.append(turns.next()[0])
    assert turns.next() is None
    turns.end(tickets[0])
    assert turns.next() is None  # a and b have one running command each
    turns.add("c", "c0")
    assert turns.next()[1] == "c0"


def test_a_single_slot_serves_one_tenant_after_the_other(clock):
    turns = TenantQueues(1, clock)
    for start in ("a0", "a1"):
        turns.add("a", start)
    turns.add("b", "b0")
    order = []
    while (turn := turns.next()) is not None:
        order.append(turn[1])
        assert turns.next() is None
        turns.end(turn[0])
    assert order == ["a0", "b0", "a1"]


def test_excess_attempts_of_a_tenant_are_snoozed(clock):
    turns = TenantQueues(1, clock)
    turns.add("a", "first")
    ticket, _ = turns.next()
    clock.now = 100.0
    put_off = []
    for number in range(1000):
        turns.add("a", number)
        put_off += turns.pop_overdue()
        assert len(turns) < CROWDED
    assert len(put_off) > 900
    assert 90 < put_off[0][1] < put_off[5][1] <= 900  # at the pace of the command
    turns.add("b", "b0")
    assert [start for start, _ in turns.pop_overdue()].count("b0") == 0
    turns.end(ticket)
    assert turns.next()[1] == "b0"


def test_only_a_tenants_first_waits_long(clock):
    turns = TenantQueues(1, clock)
    turns.add("a", "at work")
    turns.next()
    for number in range(3):
        turns.add("a", f"a{number}")
    turns.add("b", "b0")
    assert list(turns.pop_overdue()) == []
    clock.now = OTHERS_SECONDS + 1
    assert [start for start, _ in turns.pop_overdue()] == ["a2", "a1"]
    clock.now = FIRST_SECONDS + 1
    assert list(turns.pop_overdue()) == [("a0", 0.0), ("b0", 0.0)]
    assert len(turns) == 0
    turns.add("a", "again")
    assert list(turns.pending()) == ["again"]
    assert turns.clear() == ["again"]
