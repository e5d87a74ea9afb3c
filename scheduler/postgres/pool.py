"""A few connections for many threads, each lent for one piece of work."""

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.domain.errors import Unavailable
from scheduler.postgres.connection import Connection, connect, roll_back

# A server that could not be reached is not asked again at once by each who comes: that would take each a while.
_PAUSE_SECONDS = 1.0


class Pool:
    """Connections opened when they are needed; one that broke, and all that idle beside it, are opened anew."""

    def __init__(self, url: str, name: str, *, autocommit: bool = False, **session: str) -> None:
        self._url = url
        self._name = name
        self._autocommit = autocommit
        self._session = session
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._away: tuple[float, str] | None = None
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Lend a connection until the block ends; raise Unavailable when the database cannot be reached."""
        connection = self._take()
        try:
            yield connection
        except Unavailable:
            if connection.closed:
                self.drop_idle()
            raise
        finally:
            self._give_back(connection)

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
                self._lent.add(connection)
            if _alive(connection):
                return connection
            self._forget(connection)
        return self._open()

    def _open(self) -> Connection:
        if self._away is not None and time.monotonic() < self._away[0]:
            raise Unavailable(self._away[1])
        try:
            connection = connect(self._url, self._name, **self._session)
        except Unavailable as error:
            self._away = (time.monotonic() + _PAUSE_SECONDS, str(error))
            raise
        self._away = None
        connection.autocommit = self._autocommit
        with self._lock:
            self._lent.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        if not self._autocommit:
            roll_back(connection)  # nothing to do, unless somebody forgot
        with self._lock:
            self._lent.discard(connection)
            if not connection.closed and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._lent.discard(connection)
        connection.close()

    def drop_idle(self) -> None:
        """Close what nobody uses: after one has broken the others are not to be trusted."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        self._closed = True
        self.drop_idle()


def _alive(connection: Connection) -> bool:
    """Tell whether the server has said nothing unasked: that would be its farewell."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poll.poll(0)
