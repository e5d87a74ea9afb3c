"""`scheduler dev`: servers, processes, sample reminders, and every event as it is emitted."""

import os
import signal
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from scheduler import settings
from scheduler.dev import environment as dev_environment
from scheduler.dev.environment import GivenServers
from scheduler.dev.processes import processes, roles
from scheduler.dev.samples import SampleHost, SampleJob, samples
from scheduler.dev.sandbox import sandbox
from scheduler.dev.screen import Addresses, Screen
from scheduler.dev.servers import Stack, start_stack
from scheduler.domain.database_url import DatabaseUrl
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology

_LATE_SECONDS = 60


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM: unwinds the stack at any point."""


class _Signals:
    """Signals: during the start they unwind the stack; afterwards they end the watch loop."""

    def __init__(self) -> None:
        self.stopped = False
        self.watching = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        # A second Ctrl-C must not interrupt the cleanup.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self.stopped = True
        if not self.watching:
            raise _Stopped


def run(seconds: float | None, *, use_env: bool = False) -> int:
    """Run the whole sidecar for `seconds` or until it is stopped. Returns 1 if an event is missing."""
    screen = Screen(sys.stdout)
    # Report invalid settings before anything is started.
    given = dev_environment.read(os.environ, screen.say, use_env=use_env)
    signals = _Signals()
    try:
        with start_stack(
            database_url=given.database_url, amqp_url=given.amqp_url, say=screen.say, purpose="dev"
        ) as stack:
            return _run_on(stack, given, screen, seconds, signals)
    except _Stopped:
        screen.say("Stopped; nothing is left behind")
        return 0
    except Unavailable as error:
        screen.complain(str(error))
        return 1


def _run_on(stack: Stack, given: GivenServers, screen: Screen, seconds: float | None, signals: _Signals) -> int:
    """Migrate, declare, and run the processes and the samples on these servers."""
    url = given.database_url or DatabaseUrl(stack.create_database("scheduler"), given.settings.schema)
    screen.say("Migrating the database")
    migrate(url)
    config = given.settings
    topology.declare(stack.amqp_url, queue_type=config.queue_type, due_queue_type=config.due_queue_type,
                     delay_exchanges=config.delay_exchanges)
    names = roles(screen)
    addresses = Addresses(stack.amqp_url, url)
    with sandbox(stack.directory) as (endpoint, more):
        environment = _environment(addresses, names) | more
        with (
            processes(stack, names, environment, screen) as ports,
            closing(SampleHost(stack.amqp_url, all_events=given.amqp_url is None)) as host,
        ):
            running = list(zip(names, ports, strict=True))
            _add_api(addresses, running, environment)
            screen.banner(addresses)
            requested = samples(datetime.now(UTC), endpoint if "worker" in names else None)
            screen.expected |= {endpoint.removeprefix("http://"), *(sample.id for sample in requested)}
            try:
                return _watch(screen, host, requested, seconds, signals)
            finally:
                if given.amqp_url or given.database_url:
                    host.cancel(requested)


def _environment(addresses: Addresses, names: list[str]) -> dict[str, str]:
    """Return the settings of all processes; remove the API from `names` if its key is unusable."""
    variables = {
        "DATABASE_URL": addresses.database_url, "AMQP_URL": addresses.amqp_url,
        "METRICS_HOST": "127.0.0.1", "METRICS_PORT": "0",
        "LOG_FORMAT": "json", "LOG_LEVEL": "info",  # the ports are logged at info
    }
    if "api" not in names:
        addresses.no_token = "the API is not installed"  # noqa: S105 - the reason, not a secret
        return variables
    from scheduler.dev import api_access  # noqa: PLC0415 - its libraries may be missing

    variables |= api_access.api_environment(os.environ)
    try:
        api_access.check_key(settings.load(os.environ | variables))
    except Misconfigured as error:
        addresses.no_token = f"the API does not run: {error}"
        names.remove("api")
    return variables


def _add_api(
    addresses: Addresses, running: list[tuple[str, dict[str, int]]], environment: dict[str, str]
) -> None:
    """Add the API's address; with a signing key also a token and a login link."""
    port = next((ports["api_port"] for _, ports in running if "api_port" in ports), None)
    if port is None:
        return
    from scheduler.dev import api_access  # noqa: PLC0415 - its libraries may be missing

    addresses.api_url = f"http://127.0.0.1:{port}"
    addresses.console = f"{addresses.api_url}/"
    try:
        addresses.token = api_access.admin_token(settings.load(os.environ | environment))
    except Misconfigured as error:
        addresses.no_token = str(error)
    else:
        addresses.console = api_access.login_link(addresses.api_url, addresses.token)


def _watch(
    screen: Screen, host: SampleHost, requested: list[SampleJob], seconds: float | None, signals: _Signals
) -> int:
    # From here on pika runs, and an exception in a signal handler would leave it in an inconsistent state.
    signals.watching = True
    started = time.monotonic()
    for sample in requested:
        reply = host.request(sample)
        screen.sample(f"{sample.name:<18} {sample.text}{_next_run(sample, reply)}")
    elapsed = 0.0
    while not signals.stopped and (seconds is None or elapsed < seconds):
        _show_events(screen, host)
        elapsed = time.monotonic() - started
    # Due events may still be in flight: on a busy machine they are late, not missing.
    limit = time.monotonic() + _LATE_SECONDS
    while not signals.stopped and time.monotonic() <= limit:
        if all(_is_expected(host, sample, elapsed) for sample in requested):
            break
        _show_events(screen, host)
    if signals.stopped:
        raise _Stopped
    return _conclude(screen, host, requested, elapsed)


def _show_events(screen: Screen, host: SampleHost) -> None:
    for event, late in host.events(0.1):
        screen.due(event, late)
    for event in host.ends():
        screen.finished(event)


def _next_run(sample: SampleJob, reply: dict[str, str]) -> str:
    zone = sample.request.get("timezone")
    if zone is None:
        return ""
    local = datetime.fromisoformat(reply["next_run_at"]).astimezone(ZoneInfo(zone))
    return f"; the next is {local:%A %d %B %Y %H:%M %Z}"


def _conclude(screen: Screen, host: SampleHost, requested: list[SampleJob], elapsed: float) -> int:
    rows, missing = [], []
    for sample in requested:
        expected = _is_expected(host, sample, elapsed)
        late = host.seen.pop(sample.id, [])
        outcome = "as expected" if expected else "NOT as expected"
        received = _runs(host.ended.get(sample.id, [])) if sample.ends else str(len(late))
        rows.append([sample.name, sample.text, received, _worst(late), outcome])
        missing += [] if expected else [sample.name]
    for job, late in host.seen.items():
        rows.append([host.job_types[job], "your own", str(len(late)), _worst(late), ""])
    screen.summary(f"After {elapsed:.0f} seconds", ["job", "schedule", "events or runs", "latest by", ""], rows)
    return 1 if missing else 0


def _is_expected(host: SampleHost, sample: SampleJob, elapsed: float) -> bool:
    if sample.ends is not None:
        ends = host.ended.get(sample.id, [])
        return len(ends) >= min(1, sample.expected(elapsed)) and set(ends) <= {sample.ends}
    received = len(host.seen.get(sample.id, ()))
    return received == 0 if sample.cancelled else received >= sample.expected(elapsed)


def _runs(ends: list[str]) -> str:
    return ", ".join(f"{ends.count(status)} {status}" for status in dict.fromkeys(ends)) or "-"


def _worst(late: list[float]) -> str:
    return f"{max(late):.1f} ms" if late else "-"
