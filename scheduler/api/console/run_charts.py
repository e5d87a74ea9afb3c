"""The geometry of charts: the last runs of a job as bars, and the attempts of a run on a timeline."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.formatting import duration_of, instant, local, relative, span

BARS = 50
BAR_WIDTH, BAR_STEP, STRIP_HEIGHT = 9, 12, 48
_MIN_HEIGHT = 4.0  # of a visible bar
_MARKS = {"dead": "■", "waiting": "▲", "cancelled": "-"}  # shapes in addition to colours
TIMELINE_WIDTH = 1000.0
_MIN_WIDTH = 8.0


@dataclass(frozen=True, slots=True)
class RunBar:
    """The bar of a run: position, meaning and link."""

    x: int
    y: float
    height: float
    kind: str
    mark: str
    title: str
    href: str


def run_bars(runs: Sequence[Mapping[str, Any]], timezone: str) -> list[RunBar]:
    """Return the newest runs, oldest first: the height is the duration, on a logarithmic scale."""
    newest = list(reversed(runs[:BARS]))
    lengths = [duration_of(run) or 0.0 for run in newest]
    scale = _scale(lengths)
    return [_bar(index, run, _MIN_HEIGHT + (STRIP_HEIGHT - _MIN_HEIGHT - 10) * scale(length), timezone)
            for index, (run, length) in enumerate(zip(newest, lengths, strict=True))]


def _bar(index: int, run: Mapping[str, Any], height: float, timezone: str) -> RunBar:
    status = str(run["status"])
    seconds = duration_of(run)
    duration = f", took {span(seconds)}" if seconds is not None else ""
    attempt = f", attempt {run['attempt']}" if (run.get("attempt") or 0) > 1 else ""
    title = f"{status}: {local(run['due_at'], timezone)}{duration}{attempt}"
    return RunBar(index * BAR_STEP, round(STRIP_HEIGHT - height, 1), round(height, 1), status,
                  _MARKS.get(status, ""),
               title, f"/runs/{run['event_id']}")


def _scale(lengths: Iterable[float]) -> Any:
    """Return a logarithmic scale from seconds to 0 … 1, for durations from milliseconds to hours."""
    most = math.log1p(1000 * max(lengths, default=0.0))
    return lambda seconds: math.log1p(1000 * seconds) / most if most else 0.0


def lateness(runs: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, str]]:
    """Return x, height and text for each of the newest runs that has started: its delay after it was due."""
    delays = [_start_delay(run) for run in reversed(runs[:BARS])]
    most = max((delay for delay in delays if delay is not None), default=0.0)
    return [
        (index * BAR_STEP, round(1 + 15 * delay / most, 1) if most else 1.0,
         f"started {span(delay)} after it was due")
        for index, delay in enumerate(delays)
        if delay is not None
    ]


def _start_delay(run: Mapping[str, Any]) -> float | None:
    attempts = run.get("attempts") or [run]
    due, started = instant(run["due_at"]), instant(attempts[0].get("started_at"))
    recorded = len(attempts) + (run.get("attempts_omitted") or 0)
    if due is None or started is None or (run.get("attempt") or 1) > recorded:
        return None
    return max(0.0, (started - due) / timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """One attempt on the timeline, or the wait before the next one."""

    x: float
    width: float
    kind: str
    label: str
    title: str


def timeline(run: Mapping[str, Any], now: datetime) -> list[TimelineSegment]:
    """Return the attempts of a run from its due time until its end or now, and the next one."""
    due = instant(run["due_at"])
    assert due is not None  # noqa: S101 - every run has one
    attempts = _attempts(run, now)
    moments = [moment for attempt in attempts for moment in attempt[1:3] if moment is not None]
    first, last = min([due, *moments]), max([due + timedelta(milliseconds=1), *moments])
    retry_at = instant(run.get("retry_at")) if run.get("status") == "waiting" else None
    if retry_at is not None:
        last = max(last, retry_at)
    whole = (last - first) / timedelta(seconds=1)

    def position(moment: datetime) -> float:
        return TIMELINE_WIDTH * ((moment - first) / timedelta(seconds=1)) / whole

    pieces = []
    for number, started, ended, outcome in attempts:
        x, end = position(started), position(ended)
        width = max(end - x, _MIN_WIDTH)
        duration = span((ended - started) / timedelta(seconds=1))
        pieces.append(TimelineSegment(round(min(x, TIMELINE_WIDTH - width), 1), round(width, 1), outcome,
                                      str(number),
                            f"attempt {number}: {outcome.replace('_', ' ')}, {duration}"))
    if retry_at is not None:
        x = min(position(retry_at), TIMELINE_WIDTH - _MIN_WIDTH)
        pieces.append(TimelineSegment(round(x, 1), _MIN_WIDTH, "planned", "",
                            f"the next attempt, {relative(retry_at, now)}"))
    return pieces


def _attempts(run: Mapping[str, Any], now: datetime) -> list[tuple[int, datetime, datetime, str]]:
    """Return number, start, end and outcome of each attempt, including the running one."""
    rows = []
    previous = instant(run["due_at"])
    for attempt in run.get("attempts") or ():
        ended = instant(attempt.get("finished_at")) or now
        started = min(instant(attempt.get("started_at")) or previous or ended, ended)
        rows.append((int(attempt["attempt"]), started, ended, str(attempt["outcome"])))
        previous = ended
    if run.get("status") in ("delivered", "running"):
        started = instant(run.get("started_at")) or previous or now
        rows.append((int(run.get("attempt") or 1), min(started, now), now, str(run["status"])))
    return rows
