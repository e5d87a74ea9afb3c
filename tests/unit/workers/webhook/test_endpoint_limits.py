"""Limits for many fast, slow and dead endpoints, on a settable clock."""

import pytest

from scheduler.workers.turn_pace import CAREFUL_GUESS_SECONDS, MAX_SECONDS
from scheduler.workers.webhook.endpoint_limits import WAIT_SECONDS, EndpointLimiter


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def began(turn):
    return isinstance(turn, int)


def test_total_and_per_endpoint_limits(clock):
    turns = EndpointLimiter(3, 2, 10, clock)
    first = turns.admit("a", 1)
    assert began(first)
    assert began(turns.admit("a", 2))
    assert turns.admit("a", 3) is None
    assert began(turns.admit("b", 4))
    assert turns.admit("b", 5) is None  # room at its endpoint, but none in all
    assert (turns.in_flight, turns.waiting) == (3, 2)
    clock.now = 0.01
    turns.end(first, answered=True, succeeded=True)
    assert [call for _, call in turns.next()] == [3]
    assert (turns.in_flight, turns.waiting) == (3, 1)


def test_pending_calls_alternate_between_endpoints(clock):
    turns = EndpointLimiter(1, 1, 100, clock)
    ticket = turns.admit("z", 0)
    for number in range(4):
        for name in "ab":
            turns.admit(name, f"{name}{number}")
    order, name = [], "z"
    while True:
        clock.now += 0.001
        turns.end(ticket, answered=True, succeeded=True)
        [*begun] = turns.next()
        if not begun:
            break
        [(ticket, call)] = begun
        order.append(call)
        name = call[0]
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]


def test_a_dead_endpoint_holds_few_places_and_its_calls_come_back_at_its_pace(clock):
    turns = EndpointLimiter(200, 20, 100, clock)
    put_off = []
    for number in range(1000):
        turn = turns.admit("dead", number)
        if isinstance(turn, float):
            put_off.append(turn)
        if number % 10 == 0:  # it has few calls, and none of them ever waits
            ticket = turns.admit("fast", number)
            assert began(ticket)
            turns.end(ticket, answered=True, succeeded=True)
        assert turns.in_flight + turns.waiting < 300
    assert len(put_off) >= 700
    assert min(put_off) >= 0.9 * WAIT_SECONDS
    # No call has ended yet: if the endpoint hangs, not all calls may return within seconds.
    assert put_off[-1] > 0.9 * len(put_off) * CAREFUL_GUESS_SECONDS / 20


def test_overdue_pending_calls_are_snoozed(clock):
    turns = EndpointLimiter(200, 1, 100, clock)
    turns.admit("slow", "first")
    assert turns.admit("slow", "second") is None
    assert list(turns.overdue()) == []
    clock.now = WAIT_SECONDS + 0.1
    [(call, seconds)] = turns.overdue()
    assert (call, turns.waiting) == ("second", 0)
    assert seconds > 1
    assert list(turns.next()) == []


def test_however_long_an_endpoint_hangs_a_few_calls_a_second_come_back(clock):
    turns = EndpointLimiter(200, 2, 100, clock)
    turns.admit("dead", 0)
    turns.admit("dead", 1)
    clock.now = 315
    waits = [turns.admit("dead", 2) for _ in range(25)]
    assert all(isinstance(wait, float) for wait in waits)
    assert max(waits) < 10
    for _ in range(10_000):
        wait = turns.admit("dead", 3)
    assert 0.85 * MAX_SECONDS <= wait <= MAX_SECONDS


def test_an_endpoint_that_does_not_answer_gets_fewer_at_a_time_until_it_does(clock):
    turns = EndpointLimiter(200, 16, 0, clock)
    tickets = [turns.admit("a", n) for n in range(16)]
    clock.now = 30
    for ticket in tickets:
        turns.end(ticket, answered=False, succeeded=False)
    [ticket] = [turn for turn in (turns.admit("a", n) for n in range(10)) if began(turn)]
    for limit in (2, 4, 8, 16, 16):
        clock.now += 0.01
        turns.end(ticket, answered=True, succeeded=True)
        assert turns._endpoints["default", "a"].limit == limit
        ticket = turns.admit("a", 0)
        assert began(ticket)


def test_a_call_that_hangs_and_quick_failures_do_not_delay_healthy_calls(clock):
    turns = EndpointLimiter(200, 20, 100, clock)
    assert began(turns.admit("a", "hangs"))
    for _ in range(5):
        ticket = turns.admit("a", "garbage")
        clock.now += 0.01
        turns.end(ticket, answered=False, succeeded=False)
    clock.now = 10
    assert sum(began(turns.admit("a", number)) for number in range(19)) == 19


def test_while_its_calls_hang_an_endpoint_is_probed_and_recovers_when_a_probe_succeeds(clock):
    turns = EndpointLimiter(200, 16, 100, clock)
    tickets = [turns.admit("a", n) for n in range(16)]
    clock.now = 30
    for ticket in tickets:
        turns.end(ticket, answered=False, succeeded=False)
    assert began(turns.admit("a", "hangs"))
    assert isinstance(turns.admit("a", "too early"), float)
    for _ in range(2):
        clock.now += 1
        assert began(turns.admit("a", "hangs too"))
    clock.now += 1
    assert isinstance(turns.admit("a", "one too many"), float)
    turns._endpoints["default", "a"].limit = 2
    probe = turns.admit("a", "healthy")
    for limit in (4, 8, 16):
        clock.now += 0.01
        turns.end(probe, answered=True, succeeded=True)
        assert turns._endpoints["default", "a"].limit == limit
        probe = turns.admit("a", "healthy")
        assert began(probe)


def test_an_endpoint_that_fails_for_an_hour_is_one_that_fails(clock):
    turns = EndpointLimiter(10, 10, 10, clock)

    def called(name, *, well):
        turns.end(turns.admit(name, 0), answered=True, succeeded=well)

    called("a", well=False)
    called("b", well=False)
    clock.now = 3600
    called("a", well=False)
    called("b", well=True)
    assert turns.failing() == ["a"]
    clock.now = 7300
    assert turns.failing() == []  # no call for an hour


def test_endpoints_that_are_not_called_any_more_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr("scheduler.workers.webhook.endpoint_limits.REMEMBERED", 10)
    turns = EndpointLimiter(10_000, 10, 10, clock)
    busy = turns.admit("busy", 0)
    for number in range(1000):
        turns.end(turns.admit(f"{number}", 0), answered=True, succeeded=True)
    assert len(turns._endpoints) <= 11
    turns.end(busy, answered=True, succeeded=True)


def test_a_burst_to_a_fast_endpoint_waits_here_and_is_not_put_off(clock):
    turns = EndpointLimiter(200, 20, 100, clock)
    turns.end(turns.admit("fast", 0), answered=True, succeeded=True)
    begun = [turns.admit("fast", number) for number in range(20)]
    turns._endpoints["default", "fast"].mean = 0.01
    assert all(began(each) for each in begun)
    assert {turns.admit("fast", number) for number in range(280)} == {None}
    assert turns.in_flight + turns.waiting == 300


def fill(turns, tenant, count, start=0):
    """Admit endless calls, each to another endpoint; return how many started and how many were snoozed."""
    asked = [turns.admit(f"{tenant}-{number}", number, tenant) for number in range(start, start + count)]
    return sum(began(each) for each in asked), sum(isinstance(each, float) for each in asked)


@pytest.mark.parametrize("total", [1, 2, 3, 10, 200])
def test_a_tenant_alone_takes_every_place_and_the_next_ones_find_one(clock, total):
    turns = EndpointLimiter(total, 20, max(20, total // 2), clock)
    assert fill(turns, "noisy", total)[0] == total
    clock.now = 100
    assert began(turns.admit("a", 0, "quiet"))
    if total >= 10:
        assert began(turns.admit("b", 0, "another"))
    assert turns.in_flight <= total + max(1, total // 4)


def test_with_another_active_tenant_slots_stay_free(clock):
    turns = EndpointLimiter(200, 20, 100, clock)
    ticket = turns.admit("a", 0, "quiet")
    turns.end(ticket, answered=True, succeeded=True)
    assert fill(turns, "noisy", 300)[0] == 150
    assert fill(turns, "quiet", 40)[0] == 40
    assert turns.in_flight == 190


def test_a_blocked_tenants_calls_leave_room_for_what_the_broker_hands_over(clock):
    total, room = 10, 20
    turns = EndpointLimiter(total, 20, room, clock)
    begun, put_off = fill(turns, "noisy", total + room + total)  # all that the broker delivers
    assert (begun, put_off) == (total, 0)
    clock.now = 10
    seconds = [each for _, each in turns.overdue()]
    assert len(seconds) >= total
    assert turns.in_flight + turns.waiting < total + room
    assert min(seconds) >= 0.9
    begun, put_off = fill(turns, "noisy", 100, start=100)
    assert begun == 0
    assert put_off >= 99  # one may take the last place that is not kept
    assert began(turns.admit("a", 0, "quiet"))


def test_a_tenant_that_is_fast_is_not_put_off_for_others_calls(clock):
    turns = EndpointLimiter(4, 20, 20, clock)
    fill(turns, "noisy", 4)
    clock.now = 60
    assert began(turns.admit("a", 0, "quiet"))
    for number in range(20):
        assert turns.admit("a", number, "quiet") is None
    assert [each for each in turns.overdue()] == []  # noqa: C416 - an iterator


def test_when_a_place_is_free_the_tenant_with_the_fewest_calls_is_next(clock):
    turns = EndpointLimiter(4, 4, 100, clock)
    tickets = [turns.admit(f"noisy-{number}", number, "noisy") for number in range(4)]
    for number in range(10):
        turns.admit(f"noisy-{number}", number, "noisy")
    for number in range(3):
        turns.admit("quiet", f"q{number}", "quiet")  # the first of them begins, on a place of the reserve
    clock.now = 0.01
    for ticket in tickets[:2]:
        turns.end(ticket, answered=True, succeeded=True)
    assert [call for _, call in turns.next()] == ["q1"]


def test_endpoint_state_is_separate_per_tenant(clock):
    turns = EndpointLimiter(200, 20, 100, clock)
    ticket = turns.admit("shop", 0, "quiet")
    turns.end(ticket, answered=True, succeeded=True)
    tickets = [each for each in (turns.admit("shop", number, "noisy") for number in range(30)) if began(each)]
    assert len(tickets) == 15  # of 20: the rest is left to others
    clock.now = 60
    for each in tickets:
        turns.end(each, answered=False, succeeded=False)
    assert turns._endpoints["noisy", "shop"].limit == 1
    assert turns._endpoints["quiet", "shop"].limit == 20
    assert all(began(turns.admit("shop", number, "quiet")) for number in range(10))


def test_no_more_calls_go_to_one_endpoint_than_the_setting_says_whoever_makes_them(clock):
    turns = EndpointLimiter(200, 4, 100, clock)
    for tenant in ("a", "b", "c", "d"):
        for number in range(10):
            turns.admit("shop", number, tenant)
    assert turns.in_flight == 4


def test_tenants_and_hosts_without_calls_are_forgotten(clock):
    turns = EndpointLimiter(200, 20, 100, clock)
    for number in range(100):
        turns.end(turns.admit(f"{number}", 0, f"t{number}"), answered=True, succeeded=True)
    hangs = turns.admit("busy", 0, "busy")
    clock.now = 100
    assert list(turns.overdue()) == []
    assert (set(turns._tenants), set(turns._hosts)) == ({"busy"}, {"busy"})
    turns.end(hangs, answered=True, succeeded=True)
