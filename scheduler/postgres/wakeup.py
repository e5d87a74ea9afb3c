"""Sleeps until something is due or a consumer says that something came sooner."""

import os
import select

import psycopg2

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

    def wait(self, seconds: float) -> bool:
        """Sleep for at most so long; return whether a consumer woke us."""
        ready, _, _ = select.select([self._connection.fileno(), self._pipe], [], [], max(0.0, seconds))
        woken = False
        if self._connection.fileno() in ready:
            with translated():
                self._connection.poll()
                woken = bool(self._connection.notifies)
                self._connection.notifies.clear()
                if self._connection.closed:
                    raise psycopg2.OperationalError("the listening connection was closed")
        return woken

    def close(self) -> None:
        self._connection.close()
        os.close(self._pipe)
        os.close(self.write_end)
