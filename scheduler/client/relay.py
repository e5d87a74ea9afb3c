"""Publish the outbox's commands; delete each row only after the broker has confirmed it."""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pika

from scheduler.client.connection import MessageRefused, check_header
from scheduler.client.database import execute
from scheduler.client.errors import AccessRefused, BrokerUnavailable, ClientError, NoSidecar
from scheduler.client.publisher import CommandPublisher, OutboxMessage, PublishOutcome
from scheduler.domain.messages import COMMAND_MODELS
from scheduler.domain.names import COMMANDS_EXCHANGE

log = logging.getLogger(__name__)
BATCH = 100
_MAX_SECONDS = 60.0
_ABSENT_SECONDS = 5.0
_KEEP_ALIVE_SECONDS = 4.0  # a session may have a limit for idle transactions: `scheduler outbox` has 15 s
_RETRY_SECONDS = 0.2
_STOP_SECONDS = 3.0  # how long a stop waits for confirms


@dataclass(slots=True)
class _Row:
    """A row of scheduler_outbox."""

    number: int
    attempts: int
    message: OutboxMessage
    outcome: PublishOutcome = PublishOutcome.UNKNOWN
    problem: str = "the broker rejected the message: the sidecar's queue is full"


class Relay:
    """Publishes the commands in scheduler_outbox; several relays can run, in separate threads or processes.

    One transaction claims a batch, publishes it, waits for the confirms and deletes the confirmed commands. If a
    relay dies between the confirm and its commit, another publishes those commands again: the sidecar ignores
    duplicates, which have the same issued_at.
    """

    def __init__(
        self, connect: Callable[[], Any], url: str, *, batch: int = BATCH, interval: float = 0.2,
        timeout: float = 5.0, user_id: str | None = None,
    ) -> None:
        """Use `connect` to open a connection to the host's database, and `url` for the broker.

        `timeout` limits how long `run_once` tries to connect to the broker. `user_id` is the host's AMQP user,
        if the sidecar takes tenants from it.
        """
        self._user_id = user_id
        self._connect = connect
        self._database: Any = None
        self._urls = [part.strip() for part in url.split(",")]
        self._publisher: CommandPublisher | None = None
        self._batch = batch
        self._interval = interval
        self._timeout = timeout
        self._stop = threading.Event()
        self._stop_by: float | None = None
        self._kept_alive_at = 0.0
        self._thread: threading.Thread | None = None

    def run_once(self) -> int:
        """Publish one batch; return the number of confirmed commands. Raises if a server is unavailable."""
        if self._publisher is not None and not self._publisher.usable:  # this also serves its heartbeats
            self._drop_publisher()
        try:
            rows = self._claim()
            if rows and self._publisher is None:
                self._database.commit()  # connecting may take longer than a transaction may be idle
                self._publisher = self._open_publisher()
                rows = self._claim()
            return self._send(rows)
        except BaseException:
            self._disconnect()
            raise

    def _claim(self) -> list[_Row]:
        if self._database is None:
            self._database = self._connect()
        rows = execute(self._database, "claim_commands", (self._batch,))
        self._kept_alive_at = time.monotonic()
        return [self._row(*row) for row in rows]

    def _row(  # noqa: PLR0917 - the columns of claim_commands.sql
        self, number: int, kind: str, body: str, dated: bool, issued_at: str, correlation_id: str | None,
        headers: str | None, attempts: int,
    ) -> _Row:
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, type=COMMAND_MODELS[kind].__name__,
            correlation_id=correlation_id, headers=json.loads(headers) if headers else None,
            user_id=self._user_id,
        )
        encoded = (body if dated else _dated(body, issued_at)).encode()
        return _Row(number, attempts, OutboxMessage(kind, encoded, properties))

    def _send(self, rows: list[_Row]) -> int:
        """Publish the commands, delete the confirmed ones, and postpone the rejected ones."""
        problem: BrokerUnavailable | None = None
        try:
            self._publish(rows)
        except BrokerUnavailable as error:
            problem = error
        confirmed = [row.number for row in rows if row.outcome is PublishOutcome.CONFIRMED]
        if confirmed:
            execute(self._database, "delete_confirmed_commands", (confirmed,))
        self._postpone([row for row in rows if row.outcome is PublishOutcome.REFUSED], _MAX_SECONDS)
        returned = [row for row in rows if row.outcome is PublishOutcome.RETURNED]
        for row in returned:
            row.problem = f"no queue accepts commands from {COMMANDS_EXCHANGE}: start `scheduler consumer` once"
        self._postpone(returned, _ABSENT_SECONDS)
        self._database.commit()
        if problem is not None:
            self._drop_publisher()
            if not confirmed:
                raise problem
            log.warning("%d of %d commands confirmed, retrying the rest: %s", len(confirmed), len(rows), problem)
        return len(confirmed)

    def _publish(self, rows: Sequence[_Row]) -> None:
        """Publish in the table's order; if the broker closes the channel, find the command it rejects."""
        if rows and self._publisher is not None:
            _check_headers(rows, self._publisher.frame_max)
        for batch in _batches(rows):
            publisher = self._publisher
            assert publisher is not None  # noqa: S101 - connected before the rows were taken
            outcomes = publisher.publish([row.message for row in batch], self._tick)
            for row, outcome in zip(batch, outcomes, strict=True):
                row.outcome = outcome
            if publisher.channel_closed:
                _find_unsendable(rows, batch, publisher)
                publisher.reopen()
            elif PublishOutcome.UNKNOWN in outcomes:
                publisher.check()
                raise BrokerUnavailable("the broker did not confirm in time")

    def _tick(self) -> bool:
        """Keep the transaction alive; return False to stop waiting."""
        if time.monotonic() >= self._kept_alive_at + _KEEP_ALIVE_SECONDS:
            execute(self._database, "keep_alive", ())
            self._kept_alive_at = time.monotonic()
        if not self._stop.is_set():
            return True
        self._stop_by = self._stop_by or time.monotonic() + _STOP_SECONDS
        return time.monotonic() < self._stop_by

    def _postpone(self, rows: Sequence[_Row], most: float) -> None:
        """Postpone rejected commands, so that they don't block others."""
        if rows:
            delays = [min(2.0 ** min(row.attempts, 10), most) for row in rows]
            problems = [row.problem[:1000] for row in rows]
            execute(self._database, "postpone_commands", ([row.number for row in rows], delays, problems))
            first = rows[0]
            log.warning("%d commands stay in the outbox, such as %s: %s", len(rows), first.number, first.problem)

    def _open_publisher(self) -> CommandPublisher:
        """Try every URL in turn until the timeout; stop at once if every broker rejects the credentials."""
        deadline = time.monotonic() + self._timeout
        while True:
            problems: list[BrokerUnavailable] = []
            for url in self._urls:
                try:
                    return CommandPublisher(url, "outbox")
                except BrokerUnavailable as error:
                    problems.append(error)
            refused = all(isinstance(error, AccessRefused) for error in problems)
            if refused or time.monotonic() > deadline or self._stop.wait(_RETRY_SECONDS):
                raise next((error for error in problems if not isinstance(error, AccessRefused)), problems[0])

    def _drop_publisher(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def run(self) -> None:
        """Publish until `stop` is called, through any loss of a server."""
        delay = self._interval
        while not self._stop.is_set():
            try:
                sent, delay = self.run_once(), self._interval
            except Exception as error:  # noqa: BLE001 - retry after any driver's error
                sent, delay = 0, min(max(delay, 0.1) * 2, 10.0)
                log.warning("outbox not relayed, retrying: %s", _describe_error(error))
            if sent < self._batch:
                self._stop.wait(delay)
        self.close()

    def start(self) -> "Relay":
        """Run in a separate thread."""
        self._thread = threading.Thread(target=self.run, name="scheduler outbox", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the current batch and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the connections, for a host that calls `run_once`."""
        self._disconnect()
        self._drop_publisher()

    def _disconnect(self) -> None:
        if self._database is not None:
            with contextlib.suppress(Exception):  # it may be broken; its transaction is rolled back either way
                self._database.close()
            self._database = None


def _check_headers(rows: Sequence[_Row], frame_max: int) -> None:
    """Reject commands whose headers exceed a frame: the broker would close the connection."""
    for row in rows:
        try:
            check_header(row.message.properties, frame_max)
        except MessageRefused as error:
            row.outcome, row.problem = PublishOutcome.REFUSED, str(error)


def _batches(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield all rows, or single rows while the broker closes the channel, until the rejected one is found."""
    single = False
    while rest := [row for row in rows if row.outcome is PublishOutcome.UNKNOWN]:
        batch = rest[:1] if single else rest
        yield batch
        single = not single or batch[0].outcome is not PublishOutcome.REFUSED


def _find_unsendable(rows: Sequence[_Row], batch: Sequence[_Row], publisher: CommandPublisher) -> None:
    """Record why the broker closed the channel: for the single command of a batch, or for all."""
    try:
        publisher.check()
    except NoSidecar:
        for row in rows:
            row.outcome = PublishOutcome.RETURNED if row.outcome is PublishOutcome.UNKNOWN else row.outcome
    except ClientError as error:
        if len(batch) == 1:
            batch[0].outcome, batch[0].problem = PublishOutcome.REFUSED, str(error)


def _describe_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    if type(error).__name__ == "UndefinedTable":  # the name in psycopg2 and psycopg 3
        return f"{text}; `scheduler outbox --sql` prints the tables"
    return text if isinstance(error, ClientError) else f"{type(error).__name__}: {text}"


def _dated(body: str, issued_at: str) -> str:
    """Add `issued_at` to the body; the rest is unchanged."""
    head = body.rstrip().removesuffix("}").rstrip()
    return f'{head}{"" if head.endswith("{") else ","}"issued_at":"{issued_at}"}}'
