"""A database session whose client is gone releases its rows, even while the server sends to it."""

import os
import socket
import threading
from contextlib import ExitStack, closing, suppress

import pytest
from support import DEADLINE, connected, until

from chaos.proxy import Proxy
from scheduler.domain.errors import Unavailable
from scheduler.postgres import large_values, priority_classes
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import CONNECT, SESSION, connect
from scheduler.postgres.jobs.due import claim

LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout")


@pytest.fixture
def proxy(stack):
    if stack.postgres is None:
        pytest.skip("needs a private server")
    made = Proxy(stack.postgres.port)
    yield made
    made.thaw()
    made.close()


def test_rows_being_sent_to_a_dead_client_are_released(stack, database_url, proxy, monkeypatch):
    """No statement runs and no transaction idles while the server waits for its client: only TCP notices."""
    with connected(database_url) as connection:
        connection.cursor().execute(
            "INSERT INTO jobs (id, job_type, payload, next_run_at) SELECT gen_random_uuid(), 'large', "
            "json_build_object('x', repeat('x', 200000)), now() FROM generate_series(1, 150)"
        )
    # A claim is bounded in bytes, and the buffers of the machine may hold all of it: this one must be larger.
    for module in (priority_classes, large_values):
        monkeypatch.setattr(module, "MAX_CLAIM_BYTES", 1 << 30)
    cut_off = database_url.replace(f":{stack.postgres.port}/", f":{proxy.port}/")
    with ExitStack() as opened:
        other = opened.enter_context(closing(ClaimSession(database_url, "other")))
        for name in SESSION.keys() & set(LIMITS):
            monkeypatch.setitem(SESSION, name, "10s")
        silent = opened.enter_context(closing(ClaimSession(cut_off, "cut off")))
        proxy.freeze_within_a_response(after=1_000_000)

        def claim_silently():
            with suppress(Unavailable):
                claim(silent, 500)

        thread = threading.Thread(target=claim_silently)
        thread.start()
        try:
            with connected(database_url) as connection:
                until(lambda: waits_for_its_client(connection), "the server in the middle of its answer")
            until(lambda: len(claim(other, 500).things) == 150, "the rows free for others")
            other.release()
        finally:
            proxy.thaw()
            thread.join(DEADLINE)
        assert not thread.is_alive()


def waits_for_its_client(connection):
    """Return whether the server has data to send and still holds every row."""
    cursor = connection.cursor()
    # In one query: five seconds later it has ended.
    cursor.execute("SELECT (SELECT count(*) FROM (SELECT FROM jobs FOR UPDATE SKIP LOCKED) AS free) = 0 "
                   "FROM pg_stat_activity WHERE application_name = 'scheduler cut off' "
                   "AND datname = current_database() AND wait_event = 'ClientWrite'")
    return cursor.fetchone() == (True,)


def test_unacknowledged_client_data_times_out(database_url):
    """Keepalives say nothing while data is in flight."""
    with closing(connect(database_url, "test")) as connection, socket.socket(
        fileno=os.dup(connection.fileno())
    ) as wire:
        found = wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert found == CONNECT["tcp_user_timeout"] > 0
