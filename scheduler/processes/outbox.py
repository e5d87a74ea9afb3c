"""The outbox process: publishes commands committed to the host's outbox table."""

import threading

from scheduler.client.relay import Relay
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, connect_host
from scheduler.processes.runtime import Stop
from scheduler.rabbit.address import parameters, user
from scheduler.settings import Settings

log = get_logger(__name__)


def run(settings: Settings, stop: Stop, *, wait: bool) -> None:
    """Relay until the stop. DATABASE_URL is the host's database, which has the table scheduler_outbox."""
    stop.listen()

    def open_database() -> Connection:
        return connect_host(settings.database_url, "outbox")

    for url in settings.amqp_urls:
        parameters(url, "outbox")  # report an invalid URL at once
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
