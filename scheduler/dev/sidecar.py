"""`scheduler dev`: servers, processes, sample reminders, and every event as it is emitted."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from zoneinfo import ZoneInfo

from scheduler import settings
from scheduler.dev.samples import Sample, Visitor, samples
from scheduler.dev.screen import Screen
from scheduler.dev.servers import Stack, start_stack
from scheduler.domain.errors import Unavailable
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology
from scheduler.roles import ROLES

_START_SECONDS = 180
_LATE_SECONDS = 60
PROCESSES = [role.name for role in ROLES.values() for _ in range(role.in_dev)]


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM: unwinds everything, whatever is being done."""


class _Signals:
    """While things start, a signal unwinds them; once they run, the loop that watches them is asked to end."""

    def __init__(self) -> None:
        self.stopped = False
        self.watching = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        # The clean-up must not be cut short by an impatient second Ctrl-C.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self.stopped = True
        if not self.watching:
            raise _Stopped


def run(seconds: float | None) -> int:
    """Show the whole sidecar at work, for so long or until it is stopped; 1 if an event did not come."""
    given = settings.load(os.environ)  # a mistake in a setting is best told before anything is started
    screen = Screen(sys.stdout)
    signals = _Signals()
    try:
        database_url, amqp_url = (os.environ.get(name) or None for name in ("DATABASE_URL", "AMQP_URL"))
        with start_stack(database_url=database_url, amqp_url=amqp_url, say=screen.say, purpose="dev") as stack:
            url = database_url or stack.create_database("scheduler")
            screen.say("Migrating the database")
            migrate(url)
            topology.declare(stack.amqp_url, queue_type=given.queue_type, due_queue_type=given.due_queue_type,
                             delay_exchanges=given.delay_exchanges)
            with _processes(stack, url, screen) as ports, closing(Visitor(stack.amqp_url)) as host:
                screen.banner(stack.amqp_url, url, list(zip(PROCESSES, ports, strict=True)))
                return _watch(screen, host, seconds, signals)
    except _Stopped:
        screen.say("Stopped; nothing is left behind")
        return 0
    except Unavailable as error:
        screen.complain(str(error))
        return 1


def _watch(screen: Screen, host: Visitor, seconds: float | None, signals: _Signals) -> int:
    # From here on pika is at work, and an exception out of the blue would leave it in an odd state.
    signals.watching = True
    asked = samples(datetime.now(UTC))
    started = time.monotonic()
    for sample in asked:
        answer = host.ask(sample)
        screen.sample(f"{sample.name:<18} {sample.text}{_next_run(sample, answer)}")
    elapsed = 0.0
    while not signals.stopped and (seconds is None or elapsed < seconds):
        _show_events(screen, host)
        elapsed = time.monotonic() - started
    # What was due by then may still be on its way: a busy machine is late, which is not the same as never.
    limit = time.monotonic() + _LATE_SECONDS
    while not (signals.stopped or all(_fine(host, each, elapsed) for each in asked) or time.monotonic() > limit):
        _show_events(screen, host)
    if signals.stopped:
        raise _Stopped
    return _conclude(screen, host, asked, elapsed)


def _show_events(screen: Screen, host: Visitor) -> None:
    for event, late in host.events(0.1):
        screen.due(event, late)


def _next_run(sample: Sample, answer: dict[str, str]) -> str:
    zone = sample.request.get("timezone")
    if zone is None:
        return ""
    local = datetime.fromisoformat(answer["next_run_at"]).astimezone(ZoneInfo(zone))
    return f"; the next is {local:%A %d %B %Y %H:%M %Z}"


def _conclude(screen: Screen, host: Visitor, asked: list[Sample], elapsed: float) -> int:
    rows, missing = [], []
    for sample in asked:
        fine = _fine(host, sample, elapsed)
        late = host.seen.pop(sample.id, [])
        verdict = "as expected" if fine else "NOT as expected"
        rows.append([sample.name, sample.text, str(len(late)), _worst(late), verdict])
        missing += [] if fine else [sample.name]
    for job, late in host.seen.items():
        rows.append([host.job_types[job], "your own", str(len(late)), _worst(late), ""])
    screen.summary(f"After {elapsed:.0f} seconds", ["job", "schedule", "events", "latest by", ""], rows)
    return 1 if missing else 0


def _fine(host: Visitor, sample: Sample, elapsed: float) -> bool:
    came = len(host.seen.get(sample.id, ()))
    return came == 0 if sample.cancelled else came >= sample.expected(elapsed)


def _worst(late: list[float]) -> str:
    return f"{max(late):.1f} ms" if late else "-"


@contextmanager
def _processes(stack: Stack, database_url: str, screen: Screen) -> Iterator[list[int]]:
    """Run one consumer, two producers and one worker; yield their metrics ports once all are up."""
    screen.say("Starting one consumer, two producers and one worker")
    environment = os.environ | {
        "DATABASE_URL": database_url, "AMQP_URL": stack.amqp_url, "METRICS_HOST": "127.0.0.1",
        "METRICS_PORT": "0", "LOG_FORMAT": "json", "LOG_LEVEL": "info",  # the port is told at info
    }
    running: list[subprocess.Popen[str]] = []
    try:
        for role in PROCESSES:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "scheduler", role], env=environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches us alone; we stop them in order
            )
            running.append(process)
            stack.adopt(process.pid)
        yield [_port(process, screen) for process in running]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _wait(process)


def _wait(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[str], screen: Screen) -> int:
    """Wait until the process serves its metrics; go on showing its warnings."""
    ports: SimpleQueue[int] = SimpleQueue()
    threading.Thread(target=_follow, args=(process, ports, screen), daemon=True).start()
    try:
        return ports.get(timeout=_START_SECONDS)
    except Empty:
        raise Unavailable("a process of ours did not start; its messages are above") from None


def _follow(process: subprocess.Popen[str], ports: "SimpleQueue[int]", screen: Screen) -> None:
    for line in process.stderr or ():
        try:
            entry = json.loads(line)
        except ValueError:
            screen.complain(line.rstrip())
            continue
        if "metrics_port" in entry:
            ports.put(entry["metrics_port"])
        if entry["level"] in ("warning", "error"):
            details = entry.get("problem") or entry.get("problems") or ""
            screen.complain(f"{entry['process']}: {entry['event']} {details}".rstrip())
