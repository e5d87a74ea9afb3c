"""A token's requests are counted, in one process or by several in common."""

import os
import subprocess
import sys

import pytest

from scheduler.api.identity import Identity, Role
from scheduler.api.limits import OwnBuckets, RateLimit, SharedBuckets
from scheduler.api.problems import TooMany


@pytest.fixture
def memory():
    made = SharedBuckets.make()
    yield made
    os.close(made)


def who(number=0):
    return Identity("ann", Role.VIEWER, None, f"{number + 1:032x}")


def allowed(limit, asks, token=0):
    found = 0
    for _ in range(asks):
        try:
            limit.take(who(token))
            found += 1
        except TooMany:
            pass
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_token_has_so_many_a_second_and_a_burst_of_twice_that(memory, shared):
    now = [1000.0]
    limit = RateLimit(10, lambda: now[0], SharedBuckets(memory) if shared else OwnBuckets())
    assert allowed(limit, 50) == 20
    now[0] += 0.5
    assert allowed(limit, 50) == 5
    assert allowed(limit, 50, token=1) == 20  # another has its own
    now[0] += 3600
    assert allowed(limit, 50) == 20


def test_processes_count_in_common(memory):
    now = [1000.0]
    one, other = (RateLimit(10, lambda: now[0], SharedBuckets(memory)) for _ in range(2))
    assert (allowed(one, 12), allowed(other, 12), allowed(one, 12)) == (12, 8, 0)
    now[0] += 1
    assert (allowed(other, 12), allowed(one, 12)) == (10, 0)


COUNTING = """
import sys
from scheduler.api.identity import Identity, Role
from scheduler.api.limits import RateLimit, SharedBuckets
from scheduler.api.problems import TooMany
limit = RateLimit(1000, lambda: 1.0, SharedBuckets(int(sys.argv[1])))
found = 0
for _ in range(3000):
    try:
        limit.take(Identity("ann", Role.VIEWER, None, "ab" * 16))
        found += 1
    except TooMany:
        pass
print(found)
"""


def test_no_request_is_lost_between_processes_that_count_at_once(memory):
    started = [subprocess.Popen([sys.executable, "-c", COUNTING, str(memory)], pass_fds=[memory], text=True,
                                stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(each.communicate()[0]) for each in started) == 2000


def test_two_tokens_on_one_place_take_turns(memory, monkeypatch):
    monkeypatch.setattr(SharedBuckets, "PLACES", 1)
    limit = RateLimit(1, lambda: 1.0, SharedBuckets(memory))
    assert [allowed(limit, 5, token) for token in (0, 1)] == [2, 2]
