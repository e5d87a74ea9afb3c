"""Close connections whose server does not respond in time.

Keepalives detect a lost peer. They do not detect a peer whose kernel or proxy still responds while the server
doesn't: then the driver would wait forever. A separate thread shuts the socket down instead.
"""

import contextlib
import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psycopg2
import psycopg2.extensions

# Longer than the server's statement_timeout of 15 seconds (connection.py).
LIMIT_SECONDS = 20.0

_waiting: dict[int, tuple[float, "TimedConnection"]] = {}
_started = threading.Lock()


class TimedConnection(psycopg2.extensions.connection):
    """A connection that is shut down if a response takes too long; one that is `patient` never times out."""

    patient = False
    limit: float | None = None  # LIMIT_SECONDS
    hung_up = False  # a response took too long

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # For prepared_statements.py: names of prepared statements by text, their count, and recent statements.
        self.plans: OrderedDict[str, str] = OrderedDict()
        self.planned = 0
        self.seen: OrderedDict[str, None] = OrderedDict()
        # For pool.py: whether a commit was sent since this was last set to False.
        self.commit_sent = False
        # For schema.py: the schema with the sidecar's tables; empty if the session keeps its own search path.
        self.schema = ""
        # For wakeup.py: the earliest due time of new rows by kind, to be announced after the commit.
        self.wakeups: dict[str, datetime] = {}
        # For jobs/store.py: whether all jobs of the last save were new.
        self.saves_new_jobs = False
        # For zone_files.py: zones whose files are recorded in the database.
        self.recorded_zones: set[str] = set()

    def commit(self) -> None:
        self.commit_sent = True
        _expect(self)
        try:
            super().commit()
        finally:
            _waiting.pop(id(self), None)

    def rollback(self) -> None:
        self.wakeups.clear()
        _expect(self)
        try:
            super().rollback()
        finally:
            _waiting.pop(id(self), None)


class TimedCursor(psycopg2.extensions.cursor):
    """A cursor of a TimedConnection."""

    def execute(self, query: Any, vars: Any = None) -> None:  # noqa: A002 - psycopg2's name
        session = self.connection
        _expect(session)  # type: ignore[arg-type]
        try:
            super().execute(query, vars)
        finally:
            _waiting.pop(id(session), None)

    def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
        session = self.connection
        _expect(session)  # type: ignore[arg-type]
        try:
            super().copy_expert(sql, file, size)
        finally:
            _waiting.pop(id(session), None)


def watch() -> None:
    """Start the thread unless it is running."""
    if _started.acquire(blocking=False):
        threading.Thread(target=_watch, name="client timeout", daemon=True).start()


def _expect(session: TimedConnection) -> None:
    if not session.patient:
        _waiting[id(session)] = (time.monotonic(), session)


def _watch() -> None:
    while True:
        time.sleep(1.0)
        hang_up(time.monotonic(), _waiting)


def hang_up(now: float, waiting: Mapping[int, tuple[float, TimedConnection]]) -> None:
    """Shut down every session that has waited longer than its limit."""
    for since, session in list(waiting.values()):
        if since < now - (session.limit or LIMIT_SECONDS):
            session.hung_up = True
            # Another thread is inside the driver, so use only a duplicate of the socket.
            with (
                contextlib.suppress(OSError, psycopg2.Error),
                socket.socket(fileno=os.dup(session.fileno())) as copy,
            ):
                copy.shutdown(socket.SHUT_RDWR)
