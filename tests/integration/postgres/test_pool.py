"""The API's connections after an outage: no request fails because a connection died during it."""

import asyncio
import select
import socket
import struct
import threading
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest
from support import connected, unreachable

from scheduler.api.database import Database
from scheduler.api.problems import ServiceUnavailable
from scheduler.domain.errors import Unavailable
from scheduler.postgres import client_timeout, pool
from scheduler.postgres.connection import ClientTimeouts, connect, database_time, translated

LANES = ("read", "search", "write")


class Proxy:
    """A proxy to Postgres that can forget its connections, as a firewall does: it resets them on the next use."""

    def __init__(self, port):
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open, self._doomed = set(), set()
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self):
        self._doomed |= self._open

    def close(self):
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.add(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.create_connection(self._target)
        both = {client: server, server: client}
        with client, server, suppress(OSError):
            while True:
                for each in select.select(list(both), [], [])[0]:
                    data = each.recv(65536)
                    if client in self._doomed:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    if not data:
                        return
                    both[each].sendall(data)


@pytest.fixture
def proxy(stack):
    if stack.postgres is None:
        pytest.skip("the server is not ours")
    made = Proxy(stack.postgres.port)
    yield made
    made.close()


@pytest.fixture
def behind(stack, database_url, proxy):
    """A database of the API's behind the proxy."""
    database = Database(database_url.replace(f":{stack.postgres.port}/", f":{proxy.port}/"), 2)
    yield database
    database.close()


def ping(connection):
    with translated(), connection.cursor() as cursor:
        database_time(cursor)


def ask(database, lane, work=ping):
    return asyncio.run(getattr(database, lane)(work))


@pytest.mark.parametrize("first", LANES)
def test_a_success_of_one_pool_ends_the_outage_for_all(database_url, monkeypatch, first):
    clock = [0.0]
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    others = [lane for lane in LANES if lane != first]
    with closing(Database(database_url, 2)) as database:
        with unreachable(database_url):
            for lane in (first, *others):
                with pytest.raises(ServiceUnavailable):
                    ask(database, lane)
                clock[0] = 0.9
        clock[0] = 1.5
        ask(database, first)
        for lane in others:
            ask(database, lane)


def test_an_attempt_that_began_before_the_database_was_reached_ends_no_service(monkeypatch):
    clock = [1.0]
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    outage = pool.Outage()
    assert outage.failed(0.0, "refused")
    with pytest.raises(Unavailable):
        outage.check()
    clock[0] = 1.5
    outage.reached()
    outage.check()
    assert not outage.failed(1.0, "refused")
    outage.check()


@pytest.mark.parametrize("lane", LANES)
def test_a_connection_that_died_while_idle_is_not_the_callers_problem(behind, proxy, lane):
    ask(behind, lane)
    proxy.forget()
    ask(behind, lane)


def write(connection, statements):
    with translated(), connection.cursor() as cursor:
        for statement in statements:
            if callable(statement):
                statement()
            else:
                cursor.execute(statement)
        connection.commit()


def rows(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT job_type FROM jobs")
        return cursor.fetchall()


INSERT = "INSERT INTO jobs (id, job_type) VALUES (gen_random_uuid(), 'a')"


def test_a_write_is_retried_before_its_commit(behind, proxy, database_url):
    ask(behind, "write")
    left = [proxy.forget]
    ask(behind, "write", lambda connection: write(connection, [INSERT, lambda: left and left.pop()(), "SELECT 1"]))
    assert rows(database_url) == [("a",)]


def test_a_write_is_not_retried_after_its_commit(behind, proxy):
    ask(behind, "write")
    times = []
    with pytest.raises(ServiceUnavailable):
        ask(behind, "write", lambda connection: write(connection, [lambda: times.append(1), INSERT, proxy.forget]))
    assert times == [1]


def test_an_unresponsive_database_is_not_retried_at_once(database_url, monkeypatch):
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: 1.0))
    outage, asked = pool.Outage(), []
    first, second = (pool.DatabasePool(database_url, "test", autocommit=True, outage=outage) for _ in range(2))

    def get_no_answer(connection):
        asked.append(connection)
        connection.hung_up = True
        connection.close()
        raise Unavailable("no reply")

    with closing(first), closing(second):
        second.run(asked.append)
        monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: 2.0))
        with pytest.raises(Unavailable, match="no reply"):
            first.run(get_no_answer)
        assert len(asked) == 2
        for each in (first, second):
            with pytest.raises(Unavailable, match="no reply"):
                each.run(asked.append)
        assert len(asked) == 2
        assert asked[0].closed  # it may be dead too
        monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: 4.0))
        second.run(ping)


def test_each_session_has_a_limit_of_its_own_for_an_answer(database_url):
    with closing(connect(database_url, "test", ClientTimeouts(answer=5.0))) as session:
        waiting = {1: (100.0, session)}
        client_timeout.hang_up(104.0, waiting)
        assert not session.hung_up
        client_timeout.hang_up(106.0, waiting)
        assert session.hung_up
        with pytest.raises(Unavailable):
            ping(session)
