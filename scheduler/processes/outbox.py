"""The process host's outbox → AMQP: commands that the host's transactions have committed."""

import threading

from scheduler.client.relay import Relay
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, connect
from scheduler.processes.runtime import Stop
from scheduler.rabbit.address import parameters, user
from scheduler.settings import Settings

log = get_logger(__name__)


def run(settings: Settings, stop: Stop, *, wait: bool) -> None:
    """Relay until the stop; DATABASE_URL is the host's own database here, where scheduler_outbox stands."""
    stop.listen()

    def open_database() -> Connection:
        return connect(settings.database_url, "outbox")

    for url in settings.amqp_urls:
        parameters(url, "outbox")  # a mistake in it is no reason to wait
    relay = Relay(open_database, ",".join(settings.amqp_urls), interval=settings.poll_interval_ms / 1000,
                  user_id=user(settings.amqp_urls[0]) if settings.tenant_by == "user_id" else None)
    if not wait:
        open_database().close()
    threading.Thread(target=_stop_relay, args=(stop, relay), daemon=True).start()
    log.info("started", role="outbox")
    relay.run()
    log.info("stopped", role="outbox")


def _stop_relay(stop: Stop, relay: Relay) -> None:
    while not stop.wait(60.0):
        pass
    relay.stop()
