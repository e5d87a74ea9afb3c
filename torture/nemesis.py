"""Carries out the faults of a plan at their times, records when each began and ended, and heals everything."""

import contextlib
import fnmatch
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2

from torture.fleet import Fleet
from torture.history import History
from torture.host import Host
from torture.proxy import Proxy

Fault = dict[str, Any]


class Nemesis:
    """One thread a fault; a fault is {at, kind, who or link, for, …}."""

    def __init__(self, plan: dict[str, Any], history: History, fleet: Fleet, proxy: Proxy, host: Host, stack: Any,
                 database_url: str, links: list[str], victims: list[str]) -> None:
        self._faults: list[Fault] = plan["faults"]
        self._history = history
        self._fleet = fleet
        self._proxy = proxy
        self._host = host
        self._stack = stack
        self._database_url = database_url
        self._links = links
        self._victims = victims
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, origin: float) -> None:
        for fault in self._faults:
            thread = threading.Thread(target=self._run, args=(fault, origin), daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, fault: Fault, origin: float) -> None:
        if self._stop.wait(max(0.0, origin + fault["at"] - time.time())):
            return
        record = self._history.add("fault", **fault)
        try:
            with self._kind(fault["kind"])(fault):
                self._stop.wait(fault.get("for", 0))
        except Exception as error:  # noqa: BLE001 - recorded; a fault that did not happen excuses nothing
            record["problem"] = f"{type(error).__name__}: {error}"
        record["ended"] = time.time()

    def _kind(self, name: str) -> Callable[[Fault], contextlib.AbstractContextManager[None]]:
        return contextlib.contextmanager(getattr(self, f"_{name}"))

    def _linked(self, fault: Fault) -> list[str]:
        return [link for link in self._links if fnmatch.fnmatch(link, fault["link"])]

    def _kill(self, fault: Fault) -> Iterator[None]:
        """SIGKILL, or with `for` keep it down that long."""
        members = self._fleet.by_role(fault["who"])
        for member in members:
            member.killed = True
            member.held = bool(fault.get("for"))
            member.send(signal.SIGKILL)
        yield
        for member in members:
            member.held = False

    def _stop_gently(self, fault: Fault) -> Iterator[None]:
        for member in self._fleet.by_role(fault["who"]):
            member.killed = True
            member.send(signal.SIGTERM)
        yield

    def _freeze(self, fault: Fault) -> Iterator[None]:
        members = self._fleet.by_role(fault["who"])
        for member in members:
            member.send(signal.SIGSTOP)
        yield
        for member in members:
            member.send(signal.SIGCONT)

    def _slow(self, fault: Fault) -> Iterator[None]:
        for link in self._linked(fault):
            self._proxy.do("set", link, delay=fault.get("delay", 0.0), rate=fault.get("rate", 0.0))
        yield
        for link in self._linked(fault):
            self._proxy.do("set", link)

    def _cut(self, fault: Fault) -> Iterator[None]:
        for link in self._linked(fault):
            self._proxy.do("cut", link)
        yield

    def _partition(self, fault: Fault) -> Iterator[None]:
        for link in self._linked(fault):
            self._proxy.do("freeze", link)
        yield
        for link in self._linked(fault):
            self._proxy.do("thaw", link)

    def _broker(self, fault: Fault) -> Iterator[None]:
        self._stack.rabbitmq.stop(fault.get("how", "fast"))
        try:
            yield
        finally:
            self._stack.rabbitmq.start()

    def _database(self, fault: Fault) -> Iterator[None]:
        self._stack.postgres.stop(fault.get("how", "fast"))
        try:
            yield
        finally:
            self._stack.postgres.start()

    def _full(self, _: Fault) -> Iterator[None]:
        """The host stops taking from `mainapp_due`, which refuses when it is full."""
        self._host.full = True
        yield
        self._host.full = False

    def _lock(self, fault: Fault) -> Iterator[None]:
        """An operator's session holds rows of a table locked."""
        with contextlib.closing(psycopg2.connect(self._database_url)) as session, session.cursor() as cursor:
            column = "id" if fault["table"] == "jobs" else "job_id"
            limit = time.monotonic() + 5
            while not cursor.rowcount or cursor.rowcount < 0:
                cursor.execute(f"SELECT 1 FROM {fault['table']} WHERE {column} = ANY(%s::uuid[]) "
                               "LIMIT %s FOR UPDATE SKIP LOCKED", (self._victims, fault.get("rows", 1)))
                if time.monotonic() > limit:
                    raise RuntimeError("no row to lock")
                time.sleep(0.05)
            yield
            session.rollback()

    def _snapshot(self, _: Fault) -> Iterator[None]:
        """A read transaction stays open: dead rows cannot be removed."""
        with contextlib.closing(psycopg2.connect(self._database_url)) as session, session.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT 1")
            yield
            session.rollback()
