"""`scheduler top`: a live overview in a terminal."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler import settings
from scheduler.cli.terminal import coloured, plain, styled
from scheduler.domain.errors import NotMigrated, Unavailable
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
# Alternate screen, hidden cursor, no line wrap.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_PROCESS_HEAD = "HOST                       PID  VERSION          UP  HEARTBEAT"
_HEAD = f"ROLE      {_PROCESS_HEAD}     DUE/S  QUEUED/S"
_WORKERS_HEAD = f"{'WORKER':<32}VERSION          UP  HEARTBEAT     DONE   FAILED  BUSY WITH"
_RATES = ("due", "queued", "cancelled", "missed", "rejected", "failures")


@dataclass(frozen=True, slots=True)
class Frame:
    """Data for one screen."""

    at: datetime
    backlog: Backlog
    replicas: Sequence[SeenReplica]
    upcoming: Sequence[UpcomingJob]
    workers: Sequence[SeenWorker] = ()


def run(*, once: bool, every: float) -> int:
    """Show frames until Ctrl-C, or one."""
    config = settings.load(os.environ)
    logs.set_up("error", "text", "top")
    if once or not sys.stdout.isatty():
        session = MaintenanceSession(config.database_url, "top")
        try:
            print("\n".join(render(load_frame(session), colour=coloured())))
        finally:
            session.close()
        return 0
    stop = Stop()
    stop.listen()
    sys.stdout.write(_ENTER)
    try:
        _live(config.database_url, stop, max(0.2, every))
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
    return 0


def _live(url: str, stop: Stop, every: float) -> None:
    session: MaintenanceSession | None = None
    while not stop:
        try:
            session = session or MaintenanceSession(url, "top")
            lines = render(load_frame(session), colour=True)
        except NotMigrated:
            raise
        except Unavailable as error:
            if session is not None:
                session.close()
                session = None
            lines = [styled("database unavailable; retrying", "red", colour=True), "", str(error)]
        _draw(lines)
        stop.wait(every)
    if session is not None:
        session.close()


def _draw(lines: Sequence[str]) -> None:
    height = shutil.get_terminal_size().lines - 1
    text = "\n".join(line + _CLEAR_LINE for line in lines[:height])
    sys.stdout.write(f"{_HOME}{text}{_CLEAR_BELOW}")
    sys.stdout.flush()


def load_frame(session: MaintenanceSession) -> Frame:
    """Query the database for a frame."""
    at = datetime.now().astimezone()
    return Frame(at, session.measure(), session.replicas(), session.next_due(NEXT_SHOWN), session.workers())


def render(frame: Frame, *, colour: bool) -> list[str]:
    """Return the frame's lines."""

    def style(text: str, name: str) -> str:
        return styled(text, name, colour=colour)

    live = [replica for replica in frame.replicas if not replica.stale]
    lags = [sum(column) for column in zip(*(replica.recent.get("lag", ()) for replica in live), strict=False)]
    status = _status(frame, live, lags, style)
    backlog = frame.backlog
    more = "+" if backlog.due >= BACKLOG_COUNTED else ""
    spans = {f"lag p{round(share * 100)}": _seconds(percentile(share, lags)) for share in (0.5, 0.95, 0.99)}

    def facts(**values: str) -> str:
        return "  ".join(f"{style(name.replace('_', ' '), 'dim')} {value}" for name, value in values.items())

    lines = [
        f"{style('scheduler top', 'bold')}  {frame.at:%Y-%m-%d %H:%M:%S %Z}   {status}",
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
    lines += [_replica_line(replica, style) for replica in frame.replicas] or [style("no replicas", "red")]
    if frame.workers:
        lines += ["", style(_WORKERS_HEAD, "bold"), *(_worker_line(worker, style) for worker in frame.workers)]
    lines += ["", style(f"{'NEXT DUE':<12}{'JOB':<38}{'TYPE':<26}SCHEDULE", "bold")]
    lines += [_job_line(job, style) for job in frame.upcoming] or [style("no pending jobs", "dim")]
    return lines


def _classes(backlog: Backlog) -> str:
    """Return the backlog by priority, if it has jobs of high or low priority."""
    if not backlog.due_high and not backlog.due_low:
        return ""
    return " (" + ", ".join(f"{count:,} {name}" for name, count in backlog.by_class.items()) + ")"


def _status(frame: Frame, live: Sequence[SeenReplica], lags: Sequence[int], style: Style) -> str:
    """Return whether reminders are on time, and if not, the first thing to check."""
    if not any(replica.role == "producer" for replica in live):
        return style("NO PRODUCER: no events are emitted", "red")
    if frame.backlog.oldest_age > OVERDUE_SECONDS:
        return style(f"LATE: the oldest due job has waited for {_seconds(frame.backlog.oldest_age)}", "red")
    if sum(lags) and _on_time(lags) < OBJECTIVE:
        return style(f"LATE: {_share(lags)} within {ON_TIME_SECONDS * 1000:.0f} ms", "yellow")
    if not any(replica.role == "consumer" for replica in live):
        return style("NO CONSUMER: commands stay in the queue", "yellow")
    return style("on time", "green")


def _replica_line(replica: SeenReplica, style: Style) -> str:
    rates = f"{_rate([replica], 'due'):>10,.1f}{_rate([replica], 'queued'):>10,.1f}"
    line = f"{plain(replica.role, 9):<10}{_process_columns(replica)}{rates}"
    return style(line, "yellow") if replica.stale else line


def _worker_line(worker: SeenWorker, style: Style) -> str:
    """Return a worker with its longest running work, or with its offers."""
    if worker.in_flight:
        most = f" of {worker.capacity:,}" if worker.capacity else ""
        work = ", ".join(plain(str(run.get("what")), 30) for run in worker.busy[:3])
        doing = f"{worker.in_flight:,}{most}: {work}"
    else:
        doing = "idle; offers " + (", ".join(plain(offer, 30) for offer in worker.offers[:5]) or "nothing")
    name = f"{plain(f'{worker.host}:{worker.pid}', 30):<32}"  # as in the list of runs
    line = f"{name}{_age_columns(worker)}{worker.succeeded:>9,}{worker.failed:>9,}  {doing}"
    return style(line, "yellow") if worker.stale else line


def _process_columns(process: SeenReplica | SeenWorker) -> str:
    return f"{plain(process.host, 21):<22}{process.pid:>8}  {_age_columns(process)}"


def _age_columns(process: SeenReplica | SeenWorker) -> str:
    silent = _seconds(process.silent_seconds)
    heartbeat = f"STALE {silent}" if process.stale else f"{silent} ago"
    return f"{plain(process.version, 9):<10}{_seconds(process.up_seconds):>9}{heartbeat:>11}"


def _job_line(job: UpcomingJob, style: Style) -> str:
    due = f"in {_seconds(job.seconds)}" if job.seconds > 0 else f"{_seconds(-job.seconds)} ago"
    retries = f"  ({job.retries} retries)" if job.retries else ""
    line = f"{due:<12}{job.id:<38}{plain(job.job_type or '-', 25):<26}{plain(job.schedule, 40)}{retries}"
    return style(line, "yellow") if job.seconds <= -1 else line


def _rate(replicas: Iterable[SeenReplica], name: str) -> float:
    return sum(float(replica.recent.get(name, 0) / replica.recent.get("seconds", 1)) for replica in replicas)


def _on_time(lags: Sequence[int]) -> float:
    within = sum(count for bound, count in zip(LAG_BUCKETS, lags, strict=False) if bound <= ON_TIME_SECONDS)
    return within / sum(lags)


def _share(lags: Sequence[int]) -> str:
    return f"{_on_time(lags):.1%}" if sum(lags) else "-"


def _seconds(value: float | None) -> str:
    """Format a span of time in at most eight characters."""
    if value is None:
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms"  # noqa: PLR2004 - two or three significant digits
