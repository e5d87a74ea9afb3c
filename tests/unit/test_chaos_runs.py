"""The accounts of the faults around runs notice what they are there to notice."""

import pytest

from chaos.account import Result
from chaos.runs_account import judge
from chaos.runs_load import POLICY, Made, RunBooks
from chaos.worker import HEARTBEAT

EVENT = "e1"
WAIT = min(POLICY["backoff"])


def books(status="succeeded"):
    """An attempt that failed at 10 and was made again in time, and how that ended."""
    first = Made(1.0, [1.0], [2.0], [(3.0, {"status": "failed"})], {"running", "failed"})
    second = Made(3.0 + WAIT, [9.0], [9.0], [(9.1, {"status": status})], {"running", status})
    told = "succeeded" if status == "succeeded" else "dead"
    return RunBooks({EVENT: {1: first, 2: second}}, {EVENT: [(9.2, {"status": told})]})


def judged(found, *, left=0, kept=None, letters=(), rescue=False):
    def sql(statement, *_):
        if "count" in statement:
            return [(left,)]
        return kept if kept is not None else [(EVENT, found.finished[EVENT][-1][1]["status"])]

    result = Result("x", "y")
    judge(result, found, sql, set(letters), rescue=rescue)
    return result


def test_what_is_right_passes():
    assert judged(books()).passed
    assert judged(books("failed"), letters=[EVENT]).passed


def early(found):
    found.attempts[EVENT][2].emitted_at -= 0.01


def beyond(found):
    last = found.attempts[EVENT][2]
    found.attempts[EVENT] |= {n: Made(100.0 * n, running=last.running, said=last.said) for n in range(3, 7)}


def silence(found):
    found.finished.clear()
    found.finished["other"] = [(1.0, {"status": "succeeded"})]


def lost_success(found):
    found.finished[EVENT].append((9.9, {"status": "dead"}))


@pytest.mark.parametrize(("breaking", "arguments", "said"), [
    (early, {}, "before their time"), (beyond, {}, "more attempts than allowed"),
    (silence, {"kept": []}, "no end was told of 1"), (lost_success, {"letters": [EVENT]}, "not told so"),
    (lambda _: None, {"left": 2}, "2 runs left open"),
    (lambda _: None, {"kept": [(EVENT, "dead")]}, "history says otherwise of 2"),
    (lambda found: found.finished[EVENT].insert(0, (1.0, {"status": "dead"})), {}, "no dead letter of 1"),
])
def test_what_is_wrong_is_noticed(breaking, arguments, said):
    found = books()
    breaking(found)
    result = judged(found, **arguments)
    assert not result.passed
    assert any(said in each for each in result.failures), result.failures


def test_a_dead_worker_that_is_noticed_too_late():
    found = books()
    found.attempts[EVENT][1] = Made(1.0, [1.0], [2.0])
    found.attempts[EVENT][2].emitted_at = 2.0 + HEARTBEAT + max(POLICY["backoff"]) + 31
    assert judged(found).passed
    assert any("only after 31.0 s" in each for each in judged(found, rescue=True).failures)


def test_what_may_lie_longer_is_early_by_its_own_policy():
    """Nobody begins it: by the usual policy it is tried again after `start_timeout`, by this one only later."""
    found = books()
    first = found.attempts[EVENT][1]
    first.running, first.said, first.confirmed = [], [], set()
    found.attempts[EVENT][2].emitted_at = first.emitted_at + POLICY["start_timeout"] + WAIT
    kept = [(EVENT, "succeeded")]
    for policy, early_ones in ((POLICY, 0), (POLICY | {"start_timeout": POLICY["start_timeout"] + 120}, 1)):
        result = Result("x", "y")
        judge(result, found, lambda statement, *_: [(0,)] if "count" in statement else kept, set(), rescue=False,
              policy=policy)
        assert result.early == early_ones
