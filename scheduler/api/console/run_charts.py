"""The last runs of a job as a strip of bars, and the attempts of one run on a timeline: geometry only."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.formatting import duration_of, instant, local, relative, span

BARS = 50
BAR_WIDTH, BAR_STEP, STRIP_HEIGHT = 9, 12, 48
_LEAST = 4.0  # a bar that is seen at all
_MARKS = {"dead": "■", "waiting": "▲", "cancelled": "-"}  # shapes beside colours
TIMELINE_WIDTH = 1000.0
_LEAST_WIDTH = 8.0


@dataclass(frozen=True, slots=True)
class RunBar:
    """One run: where its bar stands, what it means, and where it leads."""

    x: int
    y: float
    height: float
    kind: str
    mark: str
    title: str
    href: str


def run_bars(runs: Sequence[Mapping[str, Any]], timezone: str) -> list[RunBar]:
    """Return the newest runs, oldest first: the height is the duration, on a logarithmic scale."""
    shown = list(reversed(runs[:BARS]))
    lengths = [duration_of(run) or 0.0 for run in shown]
    scale = _scale(lengths)
    return [_bar(place, run, _LEAST + (STRIP_HEIGHT - _LEAST - 10) * scale(length), timezone)
            for place, (run, length) in enumerate(zip(shown, lengths, strict=True))]


def _bar(place: int, run: Mapping[str, Any], height: float, timezone: str) -> RunBar:
    status = str(run["status"])
    lasted = duration_of(run)
    took = f", took {span(lasted)}" if lasted is not None else ""
    tries = f", attempt {run['attempt']}" if (run.get("attempt") or 0) > 1 else ""
    title = f"{status}: {local(run['due_at'], timezone)}{took}{tries}"
    return RunBar(place * BAR_STEP, round(STRIP_HEIGHT - height, 1), round(height, 1), status,
                  _MARKS.get(status, ""),
               title, f"/runs/{run['event_id']}")


def _scale(lengths: Iterable[float]) -> Any:
    """Return a function from seconds to 0 … 1: a millisecond and an hour both find their place."""
    most = math.log1p(1000 * max(lengths, default=0.0))
    return lambda seconds: math.log1p(1000 * seconds) / most if most else 0.0


def lateness(runs: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, str]]:
    """Return for each of the newest runs how late its first sign of work came: x, height, words."""
    shown = list(reversed(runs[:BARS]))
    late = [_lateness_text(run) for run in shown]
    most = max((each for each in late if each is not None), default=0.0)
    return [
        (index * BAR_STEP, round(1 + 15 * delay / most, 1) if most else 1.0,
         f"started {span(delay)} after it was due")
        for index, delay in enumerate(late)
        if delay is not None
    ]


def _lateness_text(run: Mapping[str, Any]) -> float | None:
    attempts = run.get("attempts") or [run]
    due, begun = instant(run["due_at"]), instant(attempts[0].get("started_at"))
    known = len(attempts) + (run.get("attempts_omitted") or 0)
    if due is None or begun is None or (run.get("attempt") or 1) > known:
        return None
    return max(0.0, (begun - due) / timedelta(seconds=1))


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """One attempt on the timeline, or the wait before the next one."""

    x: float
    width: float
    kind: str
    label: str
    title: str


def timeline(run: Mapping[str, Any], now: datetime) -> list[TimelineSegment]:
    """Return the attempts of a run from when it was due until it ended, or now, and the one to come."""
    due = instant(run["due_at"])
    assert due is not None  # noqa: S101 - every run has one
    attempts = _attempts(run, now)
    moments = [each for attempt in attempts for each in attempt[1:3] if each is not None]
    first, last = min([due, *moments]), max([due + timedelta(milliseconds=1), *moments])
    retry_at = instant(run.get("retry_at")) if run.get("status") == "waiting" else None
    if retry_at is not None:
        last = max(last, retry_at)
    whole = (last - first) / timedelta(seconds=1)

    def place(moment: datetime) -> float:
        return TIMELINE_WIDTH * ((moment - first) / timedelta(seconds=1)) / whole

    pieces = []
    for number, begun, ended, outcome in attempts:
        x, end = place(begun), place(ended)
        width = max(end - x, _LEAST_WIDTH)
        took = span((ended - begun) / timedelta(seconds=1))
        pieces.append(TimelineSegment(round(min(x, TIMELINE_WIDTH - width), 1), round(width, 1), outcome,
                                      str(number),
                            f"attempt {number}: {outcome.replace('_', ' ')}, {took}"))
    if retry_at is not None:
        x = min(place(retry_at), TIMELINE_WIDTH - _LEAST_WIDTH)
        pieces.append(TimelineSegment(round(x, 1), _LEAST_WIDTH, "planned", "",
                            f"the next attempt, {relative(retry_at, now)}"))
    return pieces


def _attempts(run: Mapping[str, Any], now: datetime) -> list[tuple[int, datetime, datetime, str]]:
    """Return number, beginning, end and outcome of each attempt, the one at work too."""
    found = []
    previous = instant(run["due_at"])
    for each in run.get("attempts") or ():
        ended = instant(each.get("finished_at")) or now
        begun = min(instant(each.get("started_at")) or previous or ended, ended)
        found.append((int(each["attempt"]), begun, ended, str(each["outcome"])))
        previous = ended
    if run.get("status") in ("delivered", "running"):
        begun = instant(run.get("started_at")) or previous or now
        found.append((int(run.get("attempt") or 1), min(begun, now), now, str(run["status"])))
    return found
