"""Redeclare the topology if part of it is deleted while processes run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.domain.errors import SchedulerError
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit import topology
from scheduler.rabbit.address import broker_name
from scheduler.rabbit.link import Link
from scheduler.settings import Settings

log = get_logger(__name__)
_failed = ThrottledWarning(log, "topology not redeclared")

CHECK_SECONDS = 30.0


def declare(url: str, settings: Settings) -> None:
    """Declare the topology of these settings."""
    topology.declare(
        url, queue_type=settings.queue_type, due_queue_type=settings.due_queue_type,
        delay_exchanges=settings.delay_exchanges,
    )


@contextmanager
def keep_topology(link: Link, url: str, settings: Settings) -> Iterator[None]:
    """Check the topology periodically within this context."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(CHECK_SECONDS) and link.closed is None:
            try:
                if topology.is_incomplete(link, settings.delay_exchanges):
                    declare(url, settings)
                    log.info("topology redeclared", broker=broker_name(url))
            except SchedulerError as error:
                _failed.warning(problem=str(error), do="check the broker's queues, exchanges and permissions")

    thread = threading.Thread(target=run, name="topology", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
