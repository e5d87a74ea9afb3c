"""`scheduler top`: the overview live in a terminal, for those without Grafana."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler import settings
from scheduler.cli.terminal import plain
from scheduler.domain.errors import Unavailable
from scheduler.ops import logs
from scheduler.ops.metrics import LAG_BUCKETS
from scheduler.ops.recent_activity import percentile
from scheduler.postgres.maintenance_queries import (
    BACKLOG_COUNTED,
    Backlog,
    MaintenanceSession,
    SeenReplica,
    UpcomingJob,
)
from scheduler.postgres.worker_rows import SeenWorker
from scheduler.processes.runtime import Stop

NEXT_SHOWN = 10
ON_TIME_SECONDS = 0.5
OBJECTIVE = 0.99
OVERDUE_SECONDS = 10.0
Style = Callable[[str, str], str]
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# A screen of its own, no cursor, and lines that are cut and not wrapped.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_WHERE = "HOST                       PID  VERSION          UP  HEARTBEAT"
_HEAD = f"ROLE      {_WHERE}     DUE/S  QUEUED/S"
_WORKERS_HEAD = f"WORKER    {_WHERE}     DONE   FAILED  BUSY WITH"
_RATES = ("due", "queued", "cancelled", "missed", "rejected", "failures")


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown at one moment."""

    at: datetime
    backlog: Backlog
    replicas: Sequence[SeenReplica]
    upcoming: Sequence[UpcomingJob]
    workers: Sequence[SeenWorker] = ()


def run(*, once: bool, every: float) -> int:
    """Show frames until Ctrl-C, or one."""
    found = settings.load(os.environ)
    logs.set_up("error", "text", "top")
    if once or not sys.stdout.isatty():
        session = MaintenanceSession(found.database_url, "top")
        try:
            print("\n".join(render(take(session), colour=sys.stdout.isatty())))
        finally:
            session.close()
        return 0
    stop = Stop()
    stop.listen()
    sys.stdout.write(_ENTER)
    try:
        _live(found.database_url, stop, max(0.2, every))
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
    return 0


def _live(url: str, stop: Stop, every: float) -> None:
    session: MaintenanceSession | None = None
    while not stop:
        try:
            session = session or MaintenanceSession(url, "top")
            lines = render(take(session), colour=True)
        except Unavailable as error:
            if session is not None:
                session.close()
                session = None
            lines = [_style("database unavailable: trying again", "red", colour=True), "", str(error)]
        _draw(lines)
        stop.wait(every)
    if session is not None:
        session.close()


def _draw(lines: Sequence[str]) -> None:
    height = shutil.get_terminal_size().lines - 1
    shown = "\n".join(line + _CLEAR_LINE for line in lines[:height])
    sys.stdout.write(f"{_HOME}{shown}{_CLEAR_BELOW}")
    sys.stdout.flush()


def take(session: MaintenanceSession) -> Frame:
    """Ask the database for a frame."""
    at = datetime.now().astimezone()
    return Frame(at, session.measure(), session.replicas(), session.next_due(NEXT_SHOWN), session.workers())


def render(frame: Frame, *, colour: bool) -> list[str]:
    """Return the frame's lines."""

    def style(text: str, name: str) -> str:
        return _style(text, name, colour=colour)

    live = [each for each in frame.replicas if not each.stale]
    lags = [sum(column) for column in zip(*(each.recent.get("lag", ()) for each in live), strict=False)]
    verdict = _verdict(frame, live, lags, style)
    backlog = frame.backlog
    more = "+" if backlog.due >= BACKLOG_COUNTED else ""
    spans = {f"lag p{round(share * 100)}": _seconds(percentile(share, lags)) for share in (0.5, 0.95, 0.99)}

    def facts(**shown: str) -> str:
        return "  ".join(f"{style(name.replace('_', ' '), 'dim')} {value}" for name, value in shown.items())

    lines = [
        f"{style('scheduler top', 'bold')}  {frame.at:%Y-%m-%d %H:%M:%S %Z}   {verdict}",
        "",
        facts(**{name: f"{_rate(live, name):,.1f}/s" for name in _RATES}),
        facts(**spans, on_time=_share(lags)),
        facts(
            backlog=f"{backlog.due:,}{more}{_classes(backlog)}",
            oldest_due=_seconds(backlog.oldest_age),
            pending=f"{backlog.pending:,}",
        ),
        "",
        style(_HEAD, "bold"),
    ]
    lines += [_replica(each, style) for each in frame.replicas] or [style("no replica has a heartbeat", "red")]
    if frame.workers:
        lines += ["", style(_WORKERS_HEAD, "bold"), *(_worker(each, style) for each in frame.workers)]
    lines += ["", style(f"{'NEXT DUE':<12}{'JOB':<38}{'TYPE':<26}SCHEDULE", "bold")]
    lines += [_upcoming(each, style) for each in frame.upcoming] or [style("nothing is pending", "dim")]
    return lines


def _classes(backlog: Backlog) -> str:
    """Say how the backlog is made up, where anything in it has a priority."""
    if not backlog.due_high and not backlog.due_low:
        return ""
    return " (" + ", ".join(f"{count:,} {name}" for name, count in backlog.by_class.items()) + ")"


def _verdict(frame: Frame, live: Sequence[SeenReplica], lags: Sequence[int], style: Style) -> str:
    """Say in one phrase whether reminders are on time, and if not, what to look at first."""
    if not any(each.role == "producer" for each in live):
        return style("NO PRODUCER: nothing goes out", "red")
    if frame.backlog.oldest_age > OVERDUE_SECONDS:
        return style(f"LATE: the oldest due job waits for {_seconds(frame.backlog.oldest_age)}", "red")
    if sum(lags) and _on_time(lags) < OBJECTIVE:
        return style(f"LATE: {_share(lags)} within {ON_TIME_SECONDS * 1000:.0f} ms", "yellow")
    if not any(each.role == "consumer" for each in live):
        return style("NO CONSUMER: commands wait in the queue", "yellow")
    return style("on time", "green")


def _replica(each: SeenReplica, style: Style) -> str:
    beat = f"{_seconds(each.silent_seconds)} ago" if not each.stale else f"STALE {_seconds(each.silent_seconds)}"
    line = (
        f"{plain(each.role, 9):<10}{plain(each.host, 21):<22}{each.pid:>8}  {plain(each.version, 9):<10}"
        f"{_seconds(each.up_seconds):>9}{beat:>11}{_rate([each], 'due'):>10,.1f}{_rate([each], 'queued'):>10,.1f}"
    )
    return style(line, "yellow") if each.stale else line


def _worker(each: SeenWorker, style: Style) -> str:
    """Show a worker with what it has been busy with for longest, or what it offers."""
    beat = f"{_seconds(each.silent_seconds)} ago" if not each.stale else f"STALE {_seconds(each.silent_seconds)}"
    if each.in_flight:
        doing = f"{each.in_flight:,}: " + ", ".join(plain(str(one.get("what")), 30) for one in each.busy[:3])
    else:
        doing = "idle; offers " + (", ".join(plain(offer, 30) for offer in each.offers[:5]) or "nothing")
    line = (
        f"{each.id[:8]:<10}{plain(each.host, 21):<22}{each.pid:>8}  {plain(each.version, 9):<10}"
        f"{_seconds(each.up_seconds):>9}{beat:>11}{each.succeeded:>9,}{each.failed:>9,}  {doing}"
    )
    return style(line, "yellow") if each.stale else line


def _upcoming(each: UpcomingJob, style: Style) -> str:
    when = f"in {_seconds(each.seconds)}" if each.seconds > 0 else f"{_seconds(-each.seconds)} ago"
    tried = f"  ({each.retries} tries)" if each.retries else ""
    line = f"{when:<12}{each.id:<38}{plain(each.job_type or '-', 25):<26}{plain(each.schedule, 40)}{tried}"
    return style(line, "yellow") if each.seconds <= -1 else line


def _rate(replicas: Iterable[SeenReplica], name: str) -> float:
    return sum(float(each.recent.get(name, 0) / each.recent.get("seconds", 1)) for each in replicas)


def _on_time(lags: Sequence[int]) -> float:
    within = sum(count for bound, count in zip(LAG_BUCKETS, lags, strict=False) if bound <= ON_TIME_SECONDS)
    return within / sum(lags)


def _share(lags: Sequence[int]) -> str:
    return f"{_on_time(lags):.1%}" if sum(lags) else "-"


def _seconds(value: float | None) -> str:
    """Write a span of time in at most eight characters."""
    if value is None:
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms"  # noqa: PLR2004 - as many digits as matter


def _style(text: str, name: str, *, colour: bool) -> str:
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if colour else text
