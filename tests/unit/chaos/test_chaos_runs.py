"""The checks of the run faults detect violations."""

import pytest

from chaos.account import Result
from chaos.runs_account import check
from chaos.runs_load import POLICY, AttemptRecord, RunRecords
from chaos.worker import HEARTBEAT

EVENT = "e1"
WAIT = min(POLICY["backoff"])


def records(status="succeeded"):
    """Return an attempt that failed and was retried in time, and its end."""
    first = AttemptRecord(1.0, [1.0], [2.0], [(3.0, {"status": "failed"})], {"running", "failed"})
    second = AttemptRecord(3.0 + WAIT, [9.0], [9.0], [(9.1, {"status": status})], {"running", status})
    end = "succeeded" if status == "succeeded" else "dead"
    return RunRecords({EVENT: {1: first, 2: second}}, {EVENT: [(9.2, {"status": end})]})


def checked(run_records, *, left=0, history=None, letters=(), rescue=False):
    def sql(statement, *_):
        if "count" in statement:
            return [(left,)]
        return history if history is not None else [(EVENT, run_records.finished[EVENT][-1][1]["status"])]

    result = Result("x", "y")
    check(result, run_records, sql, set(letters), rescue=rescue)
    return result


def test_correct_records_pass():
    assert checked(records()).passed
    assert checked(records("failed"), letters=[EVENT]).passed


def early(run_records):
    run_records.attempts[EVENT][2].emitted_at -= 0.01


def beyond(run_records):
    last = run_records.attempts[EVENT][2]
    later = {n: AttemptRecord(100.0 * n, running=last.running, reports=last.reports) for n in range(3, 7)}
    run_records.attempts[EVENT] |= later


def silence(run_records):
    run_records.finished.clear()
    run_records.finished["other"] = [(1.0, {"status": "succeeded"})]


def lost_success(run_records):
    run_records.finished[EVENT].append((9.9, {"status": "dead"}))


@pytest.mark.parametrize(("breaking", "arguments", "failure"), [
    (early, {}, "early attempts"), (beyond, {}, "more attempts than allowed"),
    (silence, {"history": []}, "no end announced for 1"),
    (lost_success, {"letters": [EVENT]}, "announced otherwise"),
    (lambda _: None, {"left": 2}, "2 runs left open"),
    (lambda _: None, {"history": [(EVENT, "dead")]}, "history differs for 2"),
    (lambda runs: runs.finished[EVENT].insert(0, (1.0, {"status": "dead"})), {}, "no dead letter for 1"),
])
def test_violations_are_detected(breaking, arguments, failure):
    run_records = records()
    breaking(run_records)
    result = checked(run_records, **arguments)
    assert not result.passed
    assert any(failure in text for text in result.failures), result.failures


def test_a_dead_worker_that_is_detected_too_late():
    run_records = records()
    run_records.attempts[EVENT][1] = AttemptRecord(1.0, [1.0], [2.0])
    run_records.attempts[EVENT][2].emitted_at = 2.0 + HEARTBEAT + max(POLICY["backoff"]) + 31
    assert checked(run_records).passed
    assert any("only after 31.0 s" in text for text in checked(run_records, rescue=True).failures)


def test_attempts_are_early_by_their_own_policy():
    """No worker starts it: the usual policy retries it after `start_timeout`, this one later."""
    run_records = records()
    first = run_records.attempts[EVENT][1]
    first.running, first.reports, first.confirmed = [], [], set()
    run_records.attempts[EVENT][2].emitted_at = first.emitted_at + POLICY["start_timeout"] + WAIT
    history = [(EVENT, "succeeded")]
    for policy, early_ones in ((POLICY, 0), (POLICY | {"start_timeout": POLICY["start_timeout"] + 120}, 1)):
        result = Result("x", "y")
        check(result, run_records, lambda statement, *_: [(0,)] if "count" in statement else history, set(),
              rescue=False, policy=policy)
        assert result.early == early_ones
