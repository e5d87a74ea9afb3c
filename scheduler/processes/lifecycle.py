"""The life cycle of long-running processes: start, connect, reconnect, stop."""

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import WORK_EXCHANGE
from scheduler.domain.recurrence import tzdata_version
from scheduler.domain.targets.target import SHARED_QUEUES
from scheduler.ops import health as http
from scheduler.ops import metrics
from scheduler.ops.health import Health, HealthPart
from scheduler.ops.interruptible_connect import connect_interruptibly
from scheduler.ops.logs import get_logger
from scheduler.processes.maintenance import Maintenance
from scheduler.processes.roles import ProcessRole
from scheduler.processes.runtime import Stop, backoff
from scheduler.processes.topology_keeper import declare, keep_topology
from scheduler.rabbit import pika_internals, topology
from scheduler.rabbit.address import broker_name
from scheduler.rabbit.link import Link
from scheduler.settings import Settings

log = get_logger(__name__)

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of malloc.h


def start(role: ProcessRole, settings: Settings, stop: Stop) -> tuple[list[HealthPart], Maintenance]:
    """Check pika, handle signals, serve metrics and health, and start the maintenance thread."""
    pika_internals.check()
    stop.listen()
    sys.setswitchinterval(role.switch_seconds)
    works, notifier = role.load(settings), role.notifier(settings)
    notifying = None if notifier is None else notifier(settings, stop)
    # Reference counting frees the objects of a message. So the cycle collector runs rarely, and skips imported
    # modules.
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    return_large_blocks()
    metrics.declare(tzdata_version())
    health = Health()
    # Before the health endpoint starts: a process that has not connected yet is not ready.
    needs = ["rabbitmq"] if role.broker else []
    needs += ["postgres"] if role.database and not role.idle_without_database else []
    parts = [health.part(*needs) for _ in works]
    maintenance_part = health.part("postgres", loops=False) if role.idle_without_database else None
    port = http.serve(health, settings.metrics_host, settings.metrics_port)
    log.info("started", role=role.name, metrics_host=settings.metrics_host, metrics_port=port)
    if notifying is not None:
        notifying.start()
    return parts, Maintenance(role, settings, stop, maintenance_part, port).start()


def return_large_blocks() -> None:
    """Make glibc return each freed block of several megabytes to the system.

    By default it keeps up to 64 MB after a large message. The second limit is for the end of the heap: with its
    default of 128 kB each batch would have its pages mapped again.
    """
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 4 * 1024 * 1024)
        libc.mallopt(_TRIM_THRESHOLD, 8 * 1024 * 1024)


def serve(role: ProcessRole, settings: Settings, stop: Stop, parts: Sequence[HealthPart], *, wait: bool) -> None:
    """Run all tasks of a role, each with its own thread and connection, until the stop."""
    failures: list[BaseException] = []

    def run(work: Any, part: HealthPart, name: str) -> None:
        try:
            if role.broker:
                stay_connected(name, settings, stop, part, work.run, wait=wait, declares=role.declares)
            else:
                work.run()
            if hasattr(work, "finish"):
                work.finish()  # work that continues without a broker
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            failures.append(error)
            stop.set()

    threads: list[threading.Thread] = []
    shared = role.shared(settings)
    for kind, part in zip(role.load(settings), parts, strict=True):
        name = f"{role.name} {kind.__name__}" if threads else role.name
        work = kind(settings, stop, part, *shared)
        threads.append(threading.Thread(target=run, args=(work, part, name), name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def stay_connected(
    role: str, settings: Settings, stop: Stop, health: HealthPart, work: Callable[[Link], None], *, wait: bool,
    declares: bool,
) -> None:
    """Run `work` with a connection to RabbitMQ, reconnecting to each URL in turn, until the stop."""
    delays = backoff()
    attempt = 0
    while not stop:
        url = settings.amqp_urls[attempt % len(settings.amqp_urls)]
        attempt += 1
        health.turn()
        try:
            link = connect_interruptibly(partial(_connect, role, url, settings, declares=declares))
            health.found("rabbitmq")
            log.info("connected to RabbitMQ", broker=broker_name(url))
            delays = backoff()
            wait = True
            try:
                with keep_topology(link, url, settings) if declares else nullcontext():
                    work(link)
            finally:
                with suppress(Unavailable):
                    link.close()
        except Unavailable as error:
            if not wait and attempt >= len(settings.amqp_urls):
                raise
            health.missing("rabbitmq", str(error))
            log.warning("RabbitMQ unavailable: reconnecting", problem=str(error), broker=broker_name(url),
                        do="check that it runs and that AMQP_URL is right")
            stop.wait(next(delays))


def _connect(role: str, url: str, settings: Settings, *, declares: bool) -> Link:
    if declares or not topology.declared(url):
        try:
            declare(url, settings)
        except topology.PermissionRefused:
            if declares:
                raise
            missing = " or ".join((WORK_EXCHANGE, *SHARED_QUEUES))
            raise Unavailable(f"RabbitMQ at {broker_name(url)} has no {missing} yet: "
                              "a consumer or producer declares them") from None
    return Link(url, role)
