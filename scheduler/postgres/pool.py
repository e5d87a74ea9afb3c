"""A connection pool for threads."""

import math
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from scheduler.domain.errors import NotMigrated, Unavailable
from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import ClientTimeouts, Connection, connect, roll_back

T = TypeVar("T")

# After a failed attempt, callers fail at once for this long instead of each waiting for a connection timeout.
_PAUSE_SECONDS = 1.0


class Outage:
    """Availability of the database, shared by several pools; any success ends the outage."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._problem = ""
        self._reached_at = -math.inf
        self.lost_at = -math.inf  # time of the last connection closed because the server did not respond

    def check(self) -> None:
        """Raise Unavailable if an attempt to connect has just failed."""
        if time.monotonic() < self._until:
            raise Unavailable(self._problem)

    def failed(self, began: float, problem: str) -> bool:
        """Record a failed attempt; return False if the database was reached after the attempt began."""
        if self._reached_at > began:
            return False
        self._problem = problem
        self._until = time.monotonic() + _PAUSE_SECONDS
        return True

    def lost(self, began: float, problem: str) -> None:
        """Record a statement without a response, begun at `began`: other open connections may be dead too."""
        if self.failed(began, problem):
            self.lost_at = time.monotonic()

    def reached(self) -> None:
        """Record a response of the database."""
        self._reached_at = time.monotonic()
        self._until = -math.inf


class DatabasePool:
    """Lazily opened connections; if one breaks, all idle ones are replaced."""

    def __init__(
        self, url: str, name: str, *, autocommit: bool = False, outage: Outage | None = None,
        timeouts: ClientTimeouts = ClientTimeouts(), **session: str  # noqa: B008 - immutable
    ) -> None:
        """Share `outage` with other pools of the same database."""
        self._outage = outage or Outage()
        self._url = url
        self._name = name
        self._autocommit = autocommit
        self._session = session
        self._timeouts = timeouts
        self._idle_trusted_at = -math.inf
        self._lock = threading.Lock()
        self._idle: list[TimedConnection] = []
        self._lent: set[TimedConnection] = set()
        self._closed = False

    def run(self, work: Callable[[Connection], T]) -> T:
        """Call `work` with a connection. Raises Unavailable if the database cannot be reached.

        If an idle connection turns out to be dead, retry on a new one, unless a commit may have been sent.
        """
        idle = self._take_idle()
        if idle is not None:
            idle.commit_sent = False
            try:
                return self._work(idle, work)
            except Unavailable:
                if not idle.closed or idle.commit_sent or idle.hung_up:
                    raise
        return self._work(self._open(), work)

    def _work(self, connection: TimedConnection, work: Callable[[Connection], T]) -> T:
        began = time.monotonic()
        try:
            done = work(connection)
        except Unavailable as error:
            if isinstance(error, NotMigrated):
                connection.close()  # the tables may be in another schema now
            if connection.closed:
                self.drop_idle()
            if connection.hung_up:
                self._outage.lost(began, str(error))
            raise
        finally:
            self._give_back(connection)
        self._outage.reached()
        return done

    def _take_idle(self) -> TimedConnection | None:
        if self._outage.lost_at > self._idle_trusted_at:
            self._idle_trusted_at = self._outage.lost_at
            self.drop_idle()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
                self._lent.add(connection)
            if _alive(connection):
                return connection
            self._forget(connection)

    def _open(self) -> TimedConnection:
        connection = self._connect() or self._connect()
        if connection is None:
            raise Unavailable("connections to the database fail intermittently")
        connection.autocommit = self._autocommit
        with self._lock:
            self._lent.add(connection)
        return connection

    def _connect(self) -> TimedConnection | None:
        """Open a connection; None if this failed but the database was reached since it began."""
        self._outage.check()
        began = time.monotonic()
        try:
            connection = connect(self._url, self._name, self._timeouts, **self._session)
        except Unavailable as error:
            if self._outage.failed(began, str(error)):
                raise
            return None
        self._outage.reached()
        return connection

    def _give_back(self, connection: TimedConnection) -> None:
        if not self._autocommit:
            roll_back(connection)  # a no-op unless `work` left a transaction open
        with self._lock:
            self._lent.discard(connection)
            if not connection.closed and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _forget(self, connection: TimedConnection) -> None:
        with self._lock:
            self._lent.discard(connection)
        connection.close()

    def drop_idle(self) -> None:
        """Close idle connections: if one is broken, the others probably are too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close idle connections now, and those in use when they are returned."""
        self._closed = True
        self.drop_idle()


def _alive(connection: Connection) -> bool:
    """Return whether the connection is usable: unsolicited data means that the server has closed it."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poll.poll(0)
