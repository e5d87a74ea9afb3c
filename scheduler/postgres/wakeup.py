"""Wake producers by LISTEN and NOTIFY."""

import os
import select
from collections.abc import Iterable
from datetime import datetime

import psycopg2

from scheduler.postgres.claims import LONG_AGO
from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import Cursor, connect, translated
from scheduler.postgres.schema import channel
from scheduler.resources import query


class Wakeup:
    """Waits for notifications on a connection, and for writes to a pipe."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = connect(url, name)
        self._pipe, self.write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with translated():
            self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(query("wakeup/listen", channel=channel(self._connection.schema)))

    def wait(self, seconds: float) -> dict[str | None, datetime]:
        """Wait up to `seconds`; return the due times of new rows by kind, None for any kind."""
        ready, _, _ = select.select([self._connection.fileno(), self._pipe], [], [], max(0.0, seconds))
        if self._connection.fileno() not in ready:
            return {}
        with translated():
            self._connection.poll()
            due_from = _earliest(notify.payload for notify in self._connection.notifies)
            self._connection.notifies.clear()
            if self._connection.closed:
                raise psycopg2.OperationalError("the listening connection was closed")
        return due_from

    def close(self) -> None:
        self._connection.close()
        os.close(self._pipe)
        os.close(self.write_end)


def wake_producers(cursor: Cursor, kind: str, due_from: datetime) -> None:
    """Notify producers, right after the transaction's commit, of rows of this kind due from `due_from` on."""
    session: TimedConnection = cursor.connection  # type: ignore[assignment]  # connect() returns no other type
    session.wakeups[kind] = min(due_from, session.wakeups.get(kind, due_from))


def _earliest(payloads: Iterable[str]) -> dict[str | None, datetime]:
    due_from: dict[str | None, datetime] = {}
    for payload in payloads:
        kind, moment = _parse(payload)
        due_from[kind] = min(due_from.get(kind, moment), moment)
    return due_from


def _parse(payload: str) -> tuple[str | None, datetime]:
    """Parse a notification; one with another payload, such as a manual one, makes producers check everything."""
    kind, _, text = payload.partition(" ")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None, LONG_AGO
    return (kind, moment) if moment.tzinfo else (None, LONG_AGO)
