"""Sleeps until something is due or a consumer says that something came sooner."""

import os
import select
from collections.abc import Iterable
from datetime import datetime

import psycopg2

from scheduler.postgres.claims import LONG_AGO
from scheduler.postgres.connection import Cursor, connect, translated
from scheduler.resources import query


class Wakeup:
    """A listening connection and a pipe, waited on together."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = connect(url, name)
        self._pipe, self.write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with translated():
            self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(query("wakeup/listen"))

    def wait(self, seconds: float) -> dict[str | None, datetime]:
        """Sleep for at most so long; return from when on there is something new, by kind, if a consumer woke us.

        None stands for any kind.
        """
        ready, _, _ = select.select([self._connection.fileno(), self._pipe], [], [], max(0.0, seconds))
        if self._connection.fileno() not in ready:
            return {}
        with translated():
            self._connection.poll()
            told = _soonest(each.payload for each in self._connection.notifies)
            self._connection.notifies.clear()
            if self._connection.closed:
                raise psycopg2.OperationalError("the listening connection was closed")
        return told

    def close(self) -> None:
        self._connection.close()
        os.close(self._pipe)
        os.close(self.write_end)


def wake_producers(cursor: Cursor, kind: str, due_from: datetime) -> None:
    """Tell producers, when the transaction commits, that something of a kind falls due from this moment on."""
    cursor.execute(query("wakeup/notify"), {"message": f"{kind} {due_from.isoformat()}"})


def _soonest(payloads: Iterable[str]) -> dict[str | None, datetime]:
    told: dict[str | None, datetime] = {}
    for payload in payloads:
        kind, moment = _read(payload)
        told[kind] = min(told.get(kind, moment), moment)
    return told


def _read(payload: str) -> tuple[str | None, datetime]:
    """Read what a consumer wrote; whoever else notifies us, by hand perhaps, has us look at everything."""
    kind, _, text = payload.partition(" ")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None, LONG_AGO
    return (kind, moment) if moment.tzinfo else (None, LONG_AGO)
