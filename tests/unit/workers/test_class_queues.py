"""Pending work in the order of its class."""

from scheduler.workers.class_queues import ClassQueues
from scheduler.workers.command.fairness import TenantQueues
from scheduler.workers.webhook.endpoint_limits import EndpointLimiter

HIGH, NORMAL, LOW = 0, 1, 2


def filled():
    queues = ClassQueues()
    for at, (item, rank) in enumerate([("l0", LOW), ("n0", NORMAL), ("h0", HIGH), ("l1", LOW), ("h1", HIGH)]):
        queues.add(at, item, rank)
    return queues


def test_a_higher_class_is_first_and_each_is_first_in_first_out():
    queues = filled()
    assert [queues.pop()[1] for _ in range(5)] == ["h0", "h1", "n0", "l0", "l1"]
    assert not queues
    assert len(queues) == 0


def test_the_longest_pending_and_the_newest_of_the_lowest_class_can_be_taken():
    queues = filled()
    assert queues.pop(longest=True) == (LOW, "l0")
    assert queues.pop_newest() == (LOW, "l1")
    assert (queues.oldest_at, queues.newest_at, queues.rank, queues.lowest) == (1, 1, HIGH, NORMAL)
    assert [queues.ahead(rank) for rank in (HIGH, NORMAL, LOW)] == [2, 3, 3]
    assert queues.pop_before(3) == [(NORMAL, "n0"), (HIGH, "h0")]
    assert list(queues) == ["h1"]


def one_by_one(limiter, ticket):
    """End the one call in flight until none is left, and return the calls in their order."""
    order = []
    while ticket is not None:
        limiter.end(ticket, answered=True, succeeded=True)
        begun = list(limiter.next())
        order += [call for _, call in begun]
        ticket = begun[0][0] if begun else None
    return order


def test_webhooks_of_a_higher_class_start_first_and_none_starves():
    limiter = EndpointLimiter(1, 100, 1000, lambda: 0.0)
    ticket = limiter.admit("a", "first")
    for rank, name in ((LOW, "low"), (NORMAL, "normal"), (HIGH, "high")):
        for _ in range(20):
            for endpoint in "ab":
                limiter.admit(endpoint, name, rank=rank)
    order = one_by_one(limiter, ticket)
    assert order[:9] == ["high"] * 9
    assert order[9] == "low"
    assert [order[:40].count(name) for name in ("high", "normal", "low")] == [36, 0, 4]
    assert len(order) == 120


def test_a_high_webhook_is_not_booked_behind_low_ones():
    now = [0.0]
    limiter = EndpointLimiter(100, 1, 100, lambda: now[0])
    limiter.admit("slow", "first")
    now[0] = 60.0
    for _ in range(2):
        limiter.admit("slow", "probe")  # a few more calls test whether the endpoint responds
    low = [limiter.admit("slow", "low", rank=LOW) for _ in range(100)]
    assert max(low) > 20
    assert limiter.admit("slow", "high", rank=HIGH) < 2


def test_commands_of_a_higher_class_start_first_and_none_starves():
    turns = TenantQueues(1, lambda: 0.0)
    for rank, name in ((LOW, "low"), (HIGH, "high")):
        for _ in range(20):
            turns.add("a", name, rank)
    order = []
    while (turn := turns.next()) is not None:
        order.append(turn[1])
        turns.end(turn[0])
    assert order[:10] == ["high"] * 9 + ["low"]
    assert order.count("low") == 20
