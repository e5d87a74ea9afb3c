"""A pool of connections for many threads."""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from scheduler.client.connection import Connection, MessageRefused
from scheduler.client.errors import AccessRefused, BrokerUnavailable

T = TypeVar("T")
_IDLE = 4  # kept open for the next caller


class ConnectionPool:
    """Opens connections on demand, with the URLs in turn, and keeps a few idle ones."""

    def __init__(self, urls: Sequence[str], name: str) -> None:
        self._urls = itertools.cycle(urls)
        self._attempts = len(urls)
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._inherited: list[Connection] = []
        self._owner = os.getpid()

    def use(self, act: Callable[[Connection], T], timeout: float) -> T:
        """Call `act` with a connection; reconnect and retry until it succeeds or the timeout expires."""
        deadline = time.monotonic() + timeout
        delay = 0.05
        while True:
            try:
                return self._attempt(act)
            except (MessageRefused, AccessRefused):
                raise  # a reconnect would get the same error
            except BrokerUnavailable:
                if time.monotonic() + delay > deadline:
                    raise
            time.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            delay = min(delay * 2, 2.0)

    def _attempt(self, act: Callable[[Connection], T]) -> T:
        connection = self._take()
        try:
            result = act(connection)
        except BaseException:
            # The channel may be closed, or a reply pending: don't reuse the connection.
            connection.close()
            raise
        self._give_back(connection)
        return result

    def _take(self) -> Connection:
        while (connection := self._pop()) is not None:
            if connection.usable:
                return connection
            connection.close()
        return self._connect()

    def _connect(self) -> Connection:
        """Try every URL once; raises AccessRefused if every broker rejects the credentials."""
        problems: list[BrokerUnavailable] = []
        for _ in range(self._attempts):
            with self._lock:
                url = next(self._urls)
            try:
                return Connection(url, self._name)
            except BrokerUnavailable as error:
                problems.append(error)
        raise next((error for error in problems if not isinstance(error, AccessRefused)), problems[0])

    def _pop(self) -> Connection | None:
        with self._lock:
            if self._owner != os.getpid():
                # After a fork these sockets belong to the parent: don't use or close them.
                self._inherited, self._idle, self._owner = self._idle, [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections; the next `close` closes those in use."""
        while (connection := self._pop()) is not None:
            connection.close()
