"""`scheduler top` says in a line whether reminders are on time, and shows nothing that a message could forge."""

from datetime import UTC, datetime

import pytest

from scheduler.cli.top import Frame, render
from scheduler.ops.metrics import LAG_BUCKETS
from scheduler.postgres.maintenance_queries import Backlog, SeenReplica, UpcomingJob

LAGS = [0] * (len(LAG_BUCKETS) + 1)
FAST = [*LAGS[:3], 100, *LAGS[4:]]
SLOW = [*LAGS[:14], 100, *LAGS[15:]]


def seen(role="producer", silent=1.0, lag=FAST, **recent):
    return SeenReplica(role, "host-1", 42, "1.0", 8000, 3600.0, silent, {"seconds": 10.0, "lag": lag, **recent})


def shown(*replicas, oldest=0.0, due=0, upcoming=(), colour=False):
    frame = Frame(datetime(2026, 12, 1, tzinfo=UTC), Backlog(due, oldest, 1234567), replicas, upcoming)
    return render(frame, colour=colour)


BOTH = (seen(), seen("consumer", lag=LAGS))


@pytest.mark.parametrize(("replicas", "oldest", "verdict"), [
    (BOTH, 0.0, "on time"),
    (BOTH, 75.0, "LATE: the oldest due job waits for 75 s"),
    ((seen(lag=SLOW), BOTH[1]), 0.0, "LATE: 0.0% within 500 ms"),
    ((seen(silent=60.0), BOTH[1]), 0.0, "NO PRODUCER: nothing goes out"),
    ((), 0.0, "NO PRODUCER: nothing goes out"),
    ((seen(),), 0.0, "NO CONSUMER: commands wait in the queue"),
])
def test_the_first_line_is_the_verdict(replicas, oldest, verdict):
    assert shown(*replicas, oldest=oldest)[0].endswith(verdict)


def test_rates_and_lags_are_of_all_live_replicas():
    text = "\n".join(shown(seen(due=100), seen(due=50), seen(silent=60.0, due=1000)))
    assert "due 15.0/s" in text
    assert "lag p50 3.5 ms" in text
    assert "on time 100.0%" in text
    assert "pending 1,234,567" in text


def test_stale_replicas_are_shown_as_such():
    lines = shown(*BOTH, seen(silent=60.0))
    assert [line for line in lines if "STALE 60 s" in line]


def test_a_backlog_beyond_counting_says_so():
    assert "backlog 100,000+" in "\n".join(shown(*BOTH, due=100_000))


@pytest.mark.parametrize("colour", [True, False])
def test_nothing_reaches_the_terminal_as_a_command(colour):
    nasty = UpcomingJob("7", "a\x1b[2Jb\nc\x9b", "FREQ=DAILY\r", -5.0, 3)
    lines = shown(*BOTH, upcoming=[nasty], colour=colour)
    [line] = [each for each in lines if "a?[2Jb?c?" in each]
    assert "5.0 s ago" in line
    assert "(3 tries)" in line
    assert line.replace("\x1b[33m", "").replace("\x1b[0m", "").isprintable()


def test_long_names_are_cut_at_their_column():
    [line] = [each for each in shown(*BOTH, upcoming=[UpcomingJob("7", "x" * 200, "once", 5, 0)]) if "xxx" in each]
    assert "x" * 24 + "…" in line
