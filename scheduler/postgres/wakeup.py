"""Sleeps until something is due or a consumer says that something came sooner."""

import os
import select
from datetime import datetime

import psycopg2

from scheduler.postgres.claims import LONG_AGO
from scheduler.postgres.connection import connect, translated
from scheduler.postgres.store import WAKEUP


class Wakeup:
    """A listening connection and a pipe, waited on together."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = connect(url, name)
        self._pipe, self.write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with translated():
            self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(f"LISTEN {WAKEUP}")

    def wait(self, seconds: float) -> datetime | None:
        """Sleep for at most so long; return from when on there is something new if a consumer woke us."""
        ready, _, _ = select.select([self._connection.fileno(), self._pipe], [], [], max(0.0, seconds))
        sooner = None
        if self._connection.fileno() in ready:
            with translated():
                self._connection.poll()
                told = [_moment(each.payload) for each in self._connection.notifies]
                sooner = min(told, default=None)
                self._connection.notifies.clear()
                if self._connection.closed:
                    raise psycopg2.OperationalError("the listening connection was closed")
        return sooner

    def close(self) -> None:
        self._connection.close()
        os.close(self._pipe)
        os.close(self.write_end)


def _moment(payload: str) -> datetime:
    """Read what a consumer wrote; whoever else notifies us, by hand perhaps, has us look at everything."""
    try:
        moment = datetime.fromisoformat(payload)
    except ValueError:
        return LONG_AGO
    return moment if moment.tzinfo else LONG_AGO
