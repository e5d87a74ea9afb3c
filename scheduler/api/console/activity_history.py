"""Samples from the last hour, one every ten seconds, kept in memory; and the timeliness status from them."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.formatting import count, instant, percent, span
from scheduler.ops.metrics import LAG_BUCKETS
from scheduler.ops.recent_activity import percentile
from scheduler.postgres.console_queries import SystemSnapshot
from scheduler.postgres.maintenance_queries import BACKLOG_COUNTED, STALE_SECONDS

SAMPLE_SECONDS = 10.0
MAX_SAMPLES = 360  # one hour
ON_TIME_SECONDS = 0.5
OBJECTIVE = 0.99
OVERDUE_SECONDS = 10.0
_FEW_MINUTES, _ALMOST_AN_HOUR = 100.0, 3540.0


@dataclass(frozen=True, slots=True)
class ActivitySample:
    """Activity in about ten seconds before `at`."""

    at: datetime
    lags: tuple[int, ...]  # counts by bucket of the lag histogram
    out: float  # events per second
    stored: float  # commands per second
    backlog: int
    succeeded: float  # runs per second
    dead: float  # runs per second

    def point(self) -> list[float | None]:
        """Return the values for the charts: time, p50 and p99 in ms, out, in, backlog, success in percent."""
        ended = self.succeeded + self.dead
        return [
            round(self.at.timestamp(), 1), _milliseconds(0.5, self.lags), _milliseconds(0.99, self.lags),
            round(self.out, 2), round(self.stored, 2), self.backlog,
            round(100 * self.succeeded / ended, 2) if ended else None,
        ]


def _milliseconds(share: float, lags: Sequence[int]) -> float | None:
    seconds = percentile(share, lags)
    return None if seconds is None else round(seconds * 1000, 2)


def sample(pulse: SystemSnapshot) -> ActivitySample:
    """Return the combined recent activity of all live processes."""
    recent = [replica["recent"] for replica in pulse.replicas if alive(replica, pulse.at)]
    lags = tuple(sum(column) for column in zip(*(activity.get("lag", ()) for activity in recent), strict=False))

    def rate(name: str) -> float:
        return sum(float(sample.get(name, 0)) / max(float(sample.get("seconds", 1)), 0.001) for sample in recent)

    return ActivitySample(pulse.at, lags, rate("due"), rate("queued"), pulse.backlog.due, rate("runs_succeeded"),
                  rate("runs_dead"))


def alive(process: Mapping[str, Any], now: datetime) -> bool:
    """Return whether a process or a worker has sent a recent heartbeat."""
    seen = instant(process["last_seen_at"])
    limit = timedelta(seconds=STALE_SECONDS if "role" in process else 2 * STALE_SECONDS)
    return seen is not None and now - seen <= limit


class ActivityHistory:
    """The samples from the last hour, oldest first."""

    def __init__(self) -> None:
        self.samples: deque[ActivitySample] = deque(maxlen=MAX_SAMPLES)

    def add(self, new: ActivitySample) -> None:
        """Add a sample and remove samples older than an hour."""
        self.samples.append(new)
        while new.at - self.samples[0].at > timedelta(hours=1):
            self.samples.popleft()

    def on_time(self) -> float | None:
        """Return the share of events confirmed within half a second, None without events."""
        on_time = total = 0
        for past in self.samples:
            total += sum(past.lags)
            on_time += sum(number for bound, number in zip(LAG_BUCKETS, past.lags, strict=False)
                           if bound <= ON_TIME_SECONDS)
        return on_time / total if total else None

    def success(self) -> float | None:
        """Return the share of finished runs that succeeded, None without finished runs."""
        succeeded = sum(past.succeeded for past in self.samples)
        finished = succeeded + sum(past.dead for past in self.samples)
        return succeeded / finished if finished else None

    def period(self) -> str:
        """Return the period of the samples as text: the last hour, or the time since this process started."""
        if len(self.samples) < 2:  # noqa: PLR2004 - no period
            return "just now"
        seconds = (self.samples[-1].at - self.samples[0].at).total_seconds()
        if seconds > _ALMOST_AN_HOUR:
            return "last hour"
        return f"last {span(round(seconds, -1) if seconds < _FEW_MINUTES else round(seconds / 60) * 60)}"

    def points(self) -> list[list[float | None]]:
        """Return the samples by column, for the charts."""
        return [list(column) for column in zip(*(past.point() for past in self.samples), strict=True)]


@dataclass(frozen=True, slots=True)
class TimelinessStatus:
    """The summary of the overview: one sentence and its grade (good, waiting or bad)."""

    grade: str
    text: str
    late: bool = False  # some jobs are in the list of late ones


def timeliness_status(pulse: SystemSnapshot, history: ActivityHistory) -> TimelinessStatus:
    """Return whether reminders are on time and, if not, the likely cause."""
    backlog = pulse.backlog
    live = [replica["role"] for replica in pulse.replicas if alive(replica, pulse.at)]
    many = "more than " if backlog.due >= BACKLOG_COUNTED else ""
    waiting = f"{many}{count(backlog.due, 'reminder')} {'is' if backlog.due == 1 else 'are'} due and not emitted"
    if "producer" not in live:
        since = f": {waiting}" if backlog.due else ""
        return TimelinessStatus("bad", f"Nothing is emitted: no producer is running{since}")
    if backlog.oldest_age > OVERDUE_SECONDS:
        return TimelinessStatus("bad", f"Late: {waiting}, for {span(backlog.oldest_age)}", late=True)
    if "consumer" not in live:
        return TimelinessStatus(
            "waiting", "No consumer is running: new commands wait in the queue; stored jobs are emitted on time"
        )
    share = history.on_time()
    if share is None:
        return TimelinessStatus("good", f"On time: nothing was due ({history.period()})")
    text = f"{percent(share)} within 500 ms ({history.period()})"
    return (
        TimelinessStatus("good", f"On time: {text}") if share >= OBJECTIVE else TimelinessStatus(
            "waiting", f"Late at times: {text}"
        )
    )
