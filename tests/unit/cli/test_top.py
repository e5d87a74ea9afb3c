"""`scheduler top` starts with a status line, and escapes text from messages."""

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


def rendered(*replicas, oldest=0.0, due=0, upcoming=(), colour=False):
    frame = Frame(datetime(2026, 12, 1, tzinfo=UTC), Backlog(due, oldest, 1234567), replicas, upcoming)
    return render(frame, colour=colour)


BOTH = (seen(), seen("consumer", lag=LAGS))


@pytest.mark.parametrize(("replicas", "oldest", "status"), [
    (BOTH, 0.0, "on time"),
    (BOTH, 75.0, "LATE: the oldest due job has waited for 75 s"),
    ((seen(lag=SLOW), BOTH[1]), 0.0, "LATE: 0.0% within 500 ms"),
    ((seen(silent=60.0), BOTH[1]), 0.0, "NO PRODUCER: no events are emitted"),
    ((), 0.0, "NO PRODUCER: no events are emitted"),
    ((seen(),), 0.0, "NO CONSUMER: commands stay in the queue"),
])
def test_the_first_line_is_the_status(replicas, oldest, status):
    assert rendered(*replicas, oldest=oldest)[0].endswith(status)


def test_rates_and_lags_include_all_live_replicas():
    text = "\n".join(rendered(seen(due=100), seen(due=50), seen(silent=60.0, due=1000)))
    assert "due 15.0/s" in text
    assert "lag p50 3.5 ms" in text
    assert "on time 100.0%" in text
    assert "pending 1,234,567" in text


def test_stale_replicas_are_marked():
    lines = rendered(*BOTH, seen(silent=60.0))
    assert [line for line in lines if "STALE 60 s" in line]


def test_a_backlog_above_the_counting_limit_is_marked():
    assert "backlog 100,000+" in "\n".join(rendered(*BOTH, due=100_000))


@pytest.mark.parametrize("colour", [True, False])
def test_control_characters_are_replaced(colour):
    nasty = UpcomingJob("7", "a\x1b[2Jb\nc\x9b", "FREQ=DAILY\r", -5.0, 3)
    lines = rendered(*BOTH, upcoming=[nasty], colour=colour)
    [line] = [line for line in lines if "a?[2Jb?c?" in line]
    assert "5.0 s ago" in line
    assert "(3 retries)" in line
    assert line.replace("\x1b[33m", "").replace("\x1b[0m", "").isprintable()


def test_long_names_are_truncated_to_their_column():
    lines = rendered(*BOTH, upcoming=[UpcomingJob("7", "x" * 200, "once", 5, 0)])
    [line] = [line for line in lines if "xxx" in line]
    assert "x" * 24 + "…" in line
