"""The check of `make bench ARGS=intervals` finds a missed, a doubled and a wrong call."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from bench.intervals import IntervalJob, account

START = datetime(2026, 12, 1, 8, tzinfo=UTC)
JOB = IntervalJob(uuid4(), timedelta(seconds=10), START)
END = START + timedelta(minutes=1)


def test_the_instants_follow_from_the_request():
    assert list(JOB.instants(START + timedelta(seconds=20))) == [
        "2026-12-01T08:00:00.000000Z", "2026-12-01T08:00:10.000000Z", "2026-12-01T08:00:20.000000Z"]


def test_calls_are_compared_with_the_instants():
    calls = [(str(JOB.id), at) for at in JOB.instants(END)]
    checked = account([JOB], calls, END)
    assert (checked.expected, checked.missed, checked.doubled, checked.unexpected) == (7, [], [], [])
    wrong = (str(JOB.id), "2026-12-01T08:00:05.000000Z")
    checked = account([JOB], [*calls[1:], calls[3], wrong], END)
    assert (checked.missed, checked.doubled, checked.unexpected) == ([calls[0]], [calls[3]], [wrong])


def test_a_call_after_the_end_may_happen_once():
    late = (str(JOB.id), "2026-12-01T08:01:10.000000Z")
    calls = [(str(JOB.id), at) for at in JOB.instants(END)]
    assert account([JOB], [*calls, late], END).doubled == []
    assert account([JOB], [*calls, late, late], END).doubled == [late]
