"""The last hour as this process saw it, a sample every ten seconds kept in memory, and the verdict it comes to."""

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
KEPT = 360  # an hour
ON_TIME_SECONDS = 0.5
OBJECTIVE = 0.99
OVERDUE_SECONDS = 10.0
_FEW_MINUTES, _ALMOST_AN_HOUR = 100.0, 3540.0


@dataclass(frozen=True, slots=True)
class ActivitySample:
    """What was done in the ten seconds or so before `at`."""

    at: datetime
    lags: tuple[int, ...]  # one count for each bucket of the lag's histogram
    out: float  # events a second
    taken: float  # commands stored a second
    backlog: int
    succeeded: float  # runs that ended well, a second
    dead: float  # runs given up, a second

    def point(self) -> list[float | None]:
        """Return it as the charts take it: time, p50 and p99 in ms, out, in, backlog, success in percent."""
        ended = self.succeeded + self.dead
        return [
            round(self.at.timestamp(), 1), _milliseconds(0.5, self.lags), _milliseconds(0.99, self.lags),
            round(self.out, 2), round(self.taken, 2), self.backlog,
            round(100 * self.succeeded / ended, 2) if ended else None,
        ]


def _milliseconds(share: float, lags: Sequence[int]) -> float | None:
    found = percentile(share, lags)
    return None if found is None else round(found * 1000, 2)


def sample(pulse: SystemSnapshot) -> ActivitySample:
    """Add up what the live processes say of their last seconds."""
    recent = [each["recent"] for each in pulse.replicas if alive(each, pulse.at)]
    lags = tuple(sum(column) for column in zip(*(each.get("lag", ()) for each in recent), strict=False))

    def rate(name: str) -> float:
        return sum(float(each.get(name, 0)) / max(float(each.get("seconds", 1)), 0.001) for each in recent)

    return ActivitySample(pulse.at, lags, rate("due"), rate("queued"), pulse.backlog.due, rate("runs_succeeded"),
                  rate("runs_dead"))


def alive(process: Mapping[str, Any], now: datetime) -> bool:
    """Tell whether a process or a worker was heard of lately."""
    seen = instant(process["last_seen_at"])
    limit = timedelta(seconds=STALE_SECONDS if "role" in process else 2 * STALE_SECONDS)
    return seen is not None and now - seen <= limit


class ActivityHistory:
    """The samples of the last hour, oldest first."""

    def __init__(self) -> None:
        self.samples: deque[ActivitySample] = deque(maxlen=KEPT)

    def add(self, taken: ActivitySample) -> None:
        """Keep a sample; those older than an hour go."""
        self.samples.append(taken)
        while taken.at - self.samples[0].at > timedelta(hours=1):
            self.samples.popleft()

    def on_time(self) -> float | None:
        """Return the share of events confirmed within half a second, None where there were none."""
        within = whole = 0
        for each in self.samples:
            whole += sum(each.lags)
            within += sum(number for bound, number in zip(LAG_BUCKETS, each.lags, strict=False)
                          if bound <= ON_TIME_SECONDS)
        return within / whole if whole else None

    def success(self) -> float | None:
        """Return the share of runs that ended well, None where none ended."""
        good = sum(each.succeeded for each in self.samples)
        ended = good + sum(each.dead for each in self.samples)
        return good / ended if ended else None

    def reach(self) -> str:
        """Say how far back the samples go: the last hour, or since this process started."""
        if len(self.samples) < 2:  # noqa: PLR2004 - nothing to look back on
            return "just now"
        seconds = (self.samples[-1].at - self.samples[0].at).total_seconds()
        if seconds > _ALMOST_AN_HOUR:
            return "last hour"
        return f"last {span(round(seconds, -1) if seconds < _FEW_MINUTES else round(seconds / 60) * 60)}"

    def points(self) -> list[list[float | None]]:
        """Return the samples by column, as the charts take them."""
        return [list(column) for column in zip(*(each.point() for each in self.samples), strict=True)]


@dataclass(frozen=True, slots=True)
class TimelinessStatus:
    """The answer before the data: one sentence, and how grave it is (good, waiting, bad)."""

    grade: str
    text: str


def timeliness_status(pulse: SystemSnapshot, history: ActivityHistory) -> TimelinessStatus:
    """Say whether reminders are on time, and if not, what to look at first."""
    backlog = pulse.backlog
    live = [each["role"] for each in pulse.replicas if alive(each, pulse.at)]
    many = "more than " if backlog.due >= BACKLOG_COUNTED else ""
    waiting = f"{many}{count(backlog.due, 'reminder')} {'is' if backlog.due == 1 else 'are'} due and not emitted"
    if "producer" not in live:
        since = f": {waiting}" if backlog.due else ""
        return TimelinessStatus("bad", f"Nothing is emitted: no producer is running{since}")
    if backlog.oldest_age > OVERDUE_SECONDS:
        refused = next((each for each in pulse.upcoming if each["retries"]), None)
        why = "; RabbitMQ refuses some of them" if refused is not None else ""
        return TimelinessStatus("bad", f"Late: {waiting}, for {span(backlog.oldest_age)}{why}")
    if "consumer" not in live:
        return TimelinessStatus(
            "waiting", "No consumer is running: new commands wait in the queue; stored jobs are emitted on time"
        )
    share = history.on_time()
    if share is None:
        return TimelinessStatus("good", f"On time: nothing was due ({history.reach()})")
    text = f"{percent(share)} within 500 ms ({history.reach()})"
    return (
        TimelinessStatus("good", f"On time: {text}") if share >= OBJECTIVE else TimelinessStatus(
            "waiting", f"Late at times: {text}"
        )
    )
