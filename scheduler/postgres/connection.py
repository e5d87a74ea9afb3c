"""Open connections that detect a dead peer, and translate driver errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

import psycopg2
import psycopg2.extensions
from psycopg2 import errors

from scheduler.domain.database_url import schema_of
from scheduler.domain.errors import NotMigrated, SchedulerError, Unavailable
from scheduler.ops.interruptible_connect import connect_interruptibly
from scheduler.ops.logs import get_logger, without_secrets
from scheduler.postgres import client_timeout, schema
from scheduler.resources import query

log = get_logger(__name__)

Connection = psycopg2.extensions.connection
Cursor = psycopg2.extensions.cursor

CONNECT: dict[str, Any] = {
    "client_encoding": "UTF8",  # in any database: a character that its encoding lacks then affects one value only
    # Detect a lost peer within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
SESSION = {
    "TimeZone": "UTC",
    # Defaults of the database or the user must not change what a statement means.
    "default_transaction_isolation": "read committed",
    "array_nulls": "on",
    # A frozen replica must release its rows, so that other replicas can claim them.
    "idle_in_transaction_session_timeout": "15s",
    "statement_timeout": "15s",
    "lock_timeout": "10s",
    # The server closes the connection of a client that is lost or frozen while rows are sent to it.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "15s",
    # The hot part of a large table is cached, so reading single pages is cheap.
    "random_page_cost": "1.1",
    "jit": "off",
}


_MISSING = (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction, errors.UndefinedObject)


class Unstorable(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """Postgres rejects a value; a retry does not help."""


class Contended(Unavailable):
    """Another session changed the same rows at the same time: roll back and retry at once."""


class LockTimeout(Unavailable):
    """Another session has locked one of the rows for longer than lock_timeout."""


class ClientTimeouts(NamedTuple):
    """Seconds after which a database that does not respond counts as unreachable."""

    connect: int = 10
    answer: float | None = None  # to a statement; None for client_timeout.LIMIT_SECONDS


def connect(
    url: str, name: str, timeouts: ClientTimeouts = ClientTimeouts(), /, **session: str  # noqa: B008 - immutable
) -> client_timeout.TimedConnection:
    """Open a connection to the sidecar's tables. Raises Unavailable if the database cannot be reached."""
    opened = connect_host(url, name, timeouts, **session)
    try:
        with translated(), opened.cursor() as cursor:
            opened.autocommit = True
            opened.schema = schema.find(cursor, schema_of(url))
            for setting, value in schema.session(opened.schema).items():
                cursor.execute(query("sessions/set"), {"name": setting, "value": value})
            opened.autocommit = False
    except BaseException:
        opened.close()
        raise
    return opened


def connect_host(
    url: str, name: str, timeouts: ClientTimeouts = ClientTimeouts(), /, **session: str  # noqa: B008 - immutable
) -> client_timeout.TimedConnection:
    """Open a connection with our timeouts and the search path of the host, for the host's own tables."""
    with translated():
        connection: client_timeout.TimedConnection = connect_interruptibly(lambda: psycopg2.connect(
            url, application_name=f"scheduler {name}", connection_factory=client_timeout.TimedConnection,
            cursor_factory=client_timeout.TimedCursor, connect_timeout=timeouts.connect, **CONNECT,
        ))
        try:
            client_timeout.watch()
            connection.patient = session.get("statement_timeout") == "0"
            connection.limit = timeouts.answer
            connection.autocommit = True
            with connection.cursor() as cursor:
                for setting, value in (SESSION | session).items():
                    cursor.execute(query("sessions/set"), {"name": setting, "value": value})
                cursor.execute(query("sessions/notice_lost_client"))
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def translated() -> Iterator[None]:
    """Translate the driver's errors into Unavailable, or Unstorable if the data caused them."""
    try:
        yield
    except (psycopg2.DataError, psycopg2.IntegrityError, errors.StatementTooComplex) as error:
        raise Unstorable(_line(error)) from error
    except (errors.DeadlockDetected, errors.SerializationFailure) as error:
        raise Contended(f"Postgres: {_line(error)}") from error
    except errors.LockNotAvailable as error:
        raise LockTimeout(f"Postgres: {_line(error)}") from error
    except _MISSING as error:
        line = f"the database is not migrated; run `scheduler migrate` (Postgres: {_line(error)})"
        raise NotMigrated(line) from error
    except psycopg2.Error as error:
        raise Unavailable(f"Postgres: {_line(error)}") from error


@contextmanager
def transaction(connection: Connection) -> Iterator[psycopg2.extensions.cursor]:
    """Commit at the end, roll back on any error."""
    with translated():
        try:
            with connection.cursor() as cursor:
                yield cursor
            _commit(connection)
        except BaseException:
            roll_back(connection)
            raise


def _commit(connection: Connection) -> None:
    """Commit, and announce new rows in a later, asynchronous transaction.

    Postgres holds one lock of the whole server from a transaction's NOTIFY until its commit is on the disk: in the
    same transaction it would make all commits queue. A lost announcement delays the rows until the next poll.
    """
    assert isinstance(connection, client_timeout.TimedConnection)  # noqa: S101 - connect() returns no other type
    if connection.wakeups:
        messages = [f"{kind} {due_from.isoformat()}" for kind, due_from in connection.wakeups.items()]
        connection.wakeups.clear()
        with connection.cursor() as cursor:
            connection.commit_sent = True
            cursor.execute(query("wakeup/commit_and_notify"), {"messages": messages})
        try:
            connection.commit()
        except psycopg2.Error as error:  # the rows are stored
            log.debug("producers not notified", problem=_line(error))
            roll_back(connection)
    else:
        connection.commit()


def database_time(cursor: psycopg2.extensions.cursor) -> datetime:
    """Return the transaction's time by the database's clock, the only one that counts."""
    cursor.execute(query("sessions/now"))
    [(now,)] = cursor.fetchall()
    assert isinstance(now, datetime)  # noqa: S101 - for the type checker
    return now


def roll_back(connection: Connection) -> None:
    """Roll back; close the connection if that fails."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg2.Error:
        connection.close()


def _line(error: Any) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return without_secrets(text)[:500]
