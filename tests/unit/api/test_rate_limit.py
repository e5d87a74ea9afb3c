"""The requests of each API token are limited."""

from scheduler.api import rate_limit
from scheduler.api.identity import Identity, Role
from scheduler.api.problems import TooManyRequests
from scheduler.api.rate_limit import RateLimit


def allowed(limit, requests, token="0"):
    count = 0
    for _ in range(requests):
        try:
            limit.take(Identity("ann", Role.VIEWER, None, token))
            count += 1
        except TooManyRequests:
            pass
    return count


def test_a_token_has_its_rate_and_a_burst_of_twice_that():
    now = [1000.0]
    limit = RateLimit(10, lambda: now[0])
    assert allowed(limit, 50) == 20
    now[0] += 0.5
    assert allowed(limit, 50) == 5
    assert allowed(limit, 50, token="1") == 20  # another token has its own bucket
    now[0] += 3600
    assert allowed(limit, 50) == 20


def test_the_least_recently_used_token_is_dropped(monkeypatch):
    monkeypatch.setattr(rate_limit, "_MAX_TOKENS", 2)
    limit = RateLimit(1, lambda: 1.0)
    assert [allowed(limit, 5, token) for token in "0120"] == [2, 2, 2, 2]
    assert allowed(limit, 5, "2") == 0
