"""Carries the outbox to the broker: a command leaves the table only once the broker has confirmed it."""

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pika

from scheduler.client.connection import MessageRefused
from scheduler.client.database import execute
from scheduler.client.errors import ClientError, NoSidecar
from scheduler.client.pool import Pool
from scheduler.domain.messages import COMMAND_MODELS

log = logging.getLogger(__name__)
BATCH = 100
_MOST_SECONDS = 60.0
_ABSENT_SECONDS = 5.0


class Relay:
    """Sends what stands in scheduler_outbox; run as many as you like, in threads or processes of their own.

    One that dies between the confirm and its commit sends those commands again: their issued_at makes the
    second one change nothing.
    """

    def __init__(
        self, connect: Callable[[], Any], url: str, *, batch: int = BATCH, interval: float = 0.2,
        timeout: float = 5.0, user_id: str | None = None,
    ) -> None:
        """Take a function that opens a connection to the host's database, and the broker's URL.

        `user_id` is the broker's user that we are, where the sidecar takes tenants from it.
        """
        self._user_id = user_id
        self._connect = connect
        self._database: Any = None
        self._pool = Pool([part.strip() for part in url.split(",")], "outbox")
        self._batch = batch
        self._interval = interval
        self._timeout = timeout
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> int:
        """Send one batch and return how many commands were confirmed; raise when a server is away."""
        if self._database is None:
            self._database = self._connect()
        try:
            rows = execute(self._database, "take_commands", (self._batch,))
            sent = self._send(rows)
            if sent:
                execute(self._database, "strike_commands", (sent,))
            self._database.commit()
        except BaseException:
            self._disconnect()
            raise
        return len(sent)

    def _send(self, rows: list[tuple[Any, ...]]) -> list[int]:
        """Send the commands; one that the broker refuses by itself is put off, so that it blocks no other."""
        sent = []
        for number, kind, *rest, attempts in rows:
            try:
                self._publish(kind, *rest)
            except MessageRefused as error:
                self._put_off(number, min(2.0**attempts, _MOST_SECONDS), error)
            except NoSidecar as error:
                self._put_off(number, min(2.0**attempts, _ABSENT_SECONDS), error)
                break  # the others would fare no better
            else:
                sent.append(number)
        return sent

    def _publish(  # noqa: PLR0917 - the columns of take_commands.sql
        self, kind: str, body: str, dated: bool, issued_at: str, correlation_id: str | None, headers: str | None
    ) -> None:
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, type=COMMAND_MODELS[kind].__name__,
            correlation_id=correlation_id, headers=json.loads(headers) if headers else None,
            user_id=self._user_id,
        )
        encoded = (body if dated else _dated(body, issued_at)).encode()
        self._pool.use(lambda connection: connection.publish(kind, encoded, properties), self._timeout)

    def _put_off(self, number: int, delay: float, error: ClientError) -> None:
        log.warning("command %s stays in the outbox for %g s: %s", number, delay, error)
        execute(self._database, "put_off_command", (delay, str(error)[:1000], number))

    def run(self) -> None:
        """Send until `stop` is called, whatever happens to the servers meanwhile."""
        delay = self._interval
        while not self._stop.is_set():
            try:
                sent, delay = self.run_once(), self._interval
            except Exception as error:  # noqa: BLE001 - any driver's error means the same here: try again
                sent, delay = 0, min(max(delay, 0.1) * 2, 10.0)
                log.warning("outbox not relayed, trying again: %s", _explained(error))
            if sent < self._batch:
                self._stop.wait(delay)
        self.close()

    def start(self) -> "Relay":
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="scheduler outbox", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the batch in hand and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Close its connections; for a host that calls `run_once` itself."""
        self._disconnect()
        self._pool.close()

    def _disconnect(self) -> None:
        if self._database is not None:
            with contextlib.suppress(Exception):  # it may be broken already; its transaction is gone anyway
                self._database.close()
            self._database = None


def _explained(error: Exception) -> str:
    text = " ".join(str(error).split())
    if type(error).__name__ == "UndefinedTable":  # so both psycopgs call it
        return f"{text}; `scheduler outbox --sql` prints the tables"
    return text if isinstance(error, ClientError) else f"{type(error).__name__}: {text}"


def _dated(body: str, issued_at: str) -> str:
    """Add the time of writing; the rest of the text stays as it is."""
    head = body.rstrip().removesuffix("}").rstrip()
    return f'{head}{"" if head.endswith("{") else ","}"issued_at":"{issued_at}"}}'
