"""Connections for many threads: each caller has one to itself for as long as it needs it."""

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
    """Opens connections as they are needed, through every URL in turn, and keeps a few of them."""

    def __init__(self, urls: Sequence[str], name: str) -> None:
        self._urls = itertools.cycle(urls)
        self._attempts = len(urls)
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._inherited: list[Connection] = []
        self._owner = os.getpid()

    def use(self, act: Callable[[Connection], T], timeout: float) -> T:
        """Have `act` done on a connection; reconnect and try again until it works or time is up."""
        deadline = time.monotonic() + timeout
        delay = 0.05
        while True:
            try:
                return self._attempt(act)
            except (MessageRefused, AccessRefused):
                raise  # another connection would hear the same
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
            # Whatever went wrong, the channel may be closed or an answer under way: start afresh.
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
        """Try every URL once; AccessRefused is raised if all of them refuse us."""
        problems: list[BrokerUnavailable] = []
        for _ in range(self._attempts):
            with self._lock:
                url = next(self._urls)
            try:
                return Connection(url, self._name)
            except BrokerUnavailable as error:
                problems.append(error)
        raise next((each for each in problems if not isinstance(each, AccessRefused)), problems[0])

    def _pop(self) -> Connection | None:
        with self._lock:
            if self._owner != os.getpid():
                # After a fork these sockets are the parent's: neither used nor closed here.
                self._inherited, self._idle, self._owner = self._idle, [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close what is idle; a connection in use is closed by the next `close`."""
        while (connection := self._pop()) is not None:
            connection.close()
