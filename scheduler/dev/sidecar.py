"""`scheduler dev`: servers, processes, sample reminders, and every event as it is emitted."""

import os
import signal
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from scheduler import settings
from scheduler.dev.processes import processes, roles
from scheduler.dev.samples import SampleHost, SampleJob, samples
from scheduler.dev.sandbox import sandbox
from scheduler.dev.screen import Screen
from scheduler.dev.servers import start_stack
from scheduler.domain.errors import Unavailable
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology

_LATE_SECONDS = 60


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
            wanted = roles(screen)
            with sandbox() as (endpoint, more):
                environment = _environment(stack.amqp_url, url, wanted) | more
                with (
                    processes(stack, wanted, environment, screen) as ports,
                    closing(SampleHost(stack.amqp_url)) as host,
                ):
                    _banner(screen, stack.amqp_url, url, list(zip(wanted, ports, strict=True)), environment)
                    asked = samples(datetime.now(UTC), endpoint if "worker" in wanted else None)
                    screen.meant |= {endpoint.removeprefix("http://"), *(each.id for each in asked)}
                    return _watch(screen, host, asked, seconds, signals)
    except _Stopped:
        screen.say("Stopped; nothing is left behind")
        return 0
    except Unavailable as error:
        screen.complain(str(error))
        return 1


def _environment(amqp_url: str, database_url: str, wanted: list[str]) -> dict[str, str]:
    """Return the settings of all processes."""
    made = {
        "DATABASE_URL": database_url, "AMQP_URL": amqp_url, "METRICS_HOST": "127.0.0.1", "METRICS_PORT": "0",
        "LOG_FORMAT": "json", "LOG_LEVEL": "info",  # the ports are told at info
    }
    if "api" in wanted:
        from scheduler.dev.login_link import api_environment  # noqa: PLC0415 - its libraries may be missing

        made |= api_environment(os.environ)
    return made


def _banner(
    screen: Screen, amqp_url: str, database_url: str, running: list[tuple[str, dict[str, int]]],
    environment: dict[str, str],
) -> None:
    """Show where everything is; the console's address logs in once, where the key is one that makes tokens."""
    console = None
    for _, ports in running:
        secret = environment.get("SCHEDULER_JWT_KEY") or os.environ.get("SCHEDULER_JWT_KEY")
        if "api_port" in ports:
            console = f"http://127.0.0.1:{ports['api_port']}/"
            if secret is not None and "-----BEGIN" not in secret:
                from scheduler.dev.login_link import login_link  # noqa: PLC0415 - its libraries may be missing

                console = login_link(ports["api_port"], secret)
    screen.banner(amqp_url, database_url, console, [(role, ports["metrics_port"]) for role, ports in running])


def _watch(
    screen: Screen, host: SampleHost, asked: list[SampleJob], seconds: float | None, signals: _Signals
) -> int:
    # From here on pika is at work, and an exception out of the blue would leave it in an odd state.
    signals.watching = True
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


def _show_events(screen: Screen, host: SampleHost) -> None:
    for event, late in host.events(0.1):
        screen.due(event, late)
    for event in host.ends():
        screen.finished(event)


def _next_run(sample: SampleJob, answer: dict[str, str]) -> str:
    zone = sample.request.get("timezone")
    if zone is None:
        return ""
    local = datetime.fromisoformat(answer["next_run_at"]).astimezone(ZoneInfo(zone))
    return f"; the next is {local:%A %d %B %Y %H:%M %Z}"


def _conclude(screen: Screen, host: SampleHost, asked: list[SampleJob], elapsed: float) -> int:
    rows, missing = [], []
    for sample in asked:
        fine = _fine(host, sample, elapsed)
        late = host.seen.pop(sample.id, [])
        verdict = "as expected" if fine else "NOT as expected"
        came = _runs(host.ended.get(sample.id, [])) if sample.ends else str(len(late))
        rows.append([sample.name, sample.text, came, _worst(late), verdict])
        missing += [] if fine else [sample.name]
    for job, late in host.seen.items():
        rows.append([host.job_types[job], "your own", str(len(late)), _worst(late), ""])
    screen.summary(f"After {elapsed:.0f} seconds", ["job", "schedule", "events or runs", "latest by", ""], rows)
    return 1 if missing else 0


def _fine(host: SampleHost, sample: SampleJob, elapsed: float) -> bool:
    if sample.ends is not None:
        ends = host.ended.get(sample.id, [])
        return len(ends) >= min(1, sample.expected(elapsed)) and set(ends) <= {sample.ends}
    came = len(host.seen.get(sample.id, ()))
    return came == 0 if sample.cancelled else came >= sample.expected(elapsed)


def _runs(ends: list[str]) -> str:
    return ", ".join(f"{ends.count(each)} {each}" for each in dict.fromkeys(ends)) or "-"


def _worst(late: list[float]) -> str:
    return f"{max(late):.1f} ms" if late else "-"
