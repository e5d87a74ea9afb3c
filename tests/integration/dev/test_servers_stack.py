"""The local stack against real servers, used as an owner in this process uses it."""

import shutil
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pika
import psycopg2
import pytest
from support import DEADLINE, amqp

from scheduler.dev.servers import RabbitServer, ServerFailed, start_stack
from scheduler.dev.servers.binaries import find_rabbitmq
from scheduler.dev.servers.ports import LOOPBACK, free_ports, is_free
from scheduler.dev.servers.processes import descendants, start_time, wait_until
from scheduler.dev.servers.vhosts import ManagedVhosts, name_of


@pytest.fixture(scope="module")
def base():
    # Not tmp_path: as root, Postgres runs as another user, who cannot pass pytest's private folders.
    folder = Path(tempfile.mkdtemp(prefix="scheduler-test-"))
    folder.chmod(0o711)
    yield folder / "base"
    assert list(folder.iterdir()) == [], "a stack left something behind"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def own_stack(base):
    """A stack of these tests' own: they stop and kill its servers."""
    with start_stack(root=base, purpose="test", postgres_settings={"max_connections": "40"}) as stack:
        yield stack


def query(url: str, text: str):
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall() if cursor.description else None


def test_databases_and_vhosts_can_be_used_and_are_separate(own_stack):
    first, second = own_stack.create_database(), own_stack.create_database()
    query(first, "CREATE TABLE here (n int)")
    assert query(second, "SELECT count(*) FROM pg_tables WHERE tablename = 'here'") == [(0,)]
    copy = own_stack.create_database("copied", template=first.rpartition("/")[2])
    assert query(copy, "SELECT count(*) FROM here") == [(0,)]
    with closing(psycopg2.connect(first)):
        for url in (first, second, copy):
            own_stack.drop_database(url)
    with pytest.raises(psycopg2.OperationalError, match="does not exist"):
        psycopg2.connect(copy)

    one, other = own_stack.create_vhost(), own_stack.create_vhost()
    with closing(amqp(one)) as link:
        link.channel().queue_declare("here", durable=True, arguments={"x-queue-type": "quorum"})
    with closing(amqp(other)) as link:
        channel = link.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("here", passive=True)
    own_stack.delete_vhost(one)
    own_stack.delete_vhost(other)
    assert own_stack.rabbitmq.ctl("list_vhosts").split() == ["name", "/"]


def test_a_node_serves_concurrent_erl_calls(own_stack):
    """To a node that still knew the last one, the next caller of the same name was a stranger to turn away."""
    together = ThreadPoolExecutor(6)
    answers = together.map(own_stack.rabbitmq.evaluate, [f"timer:sleep(200), {number}" for number in range(6)])
    assert list(answers) == [str(number) for number in range(6)]
    together.shutdown()
    with pytest.raises(ServerFailed, match="badmatch"):
        own_stack.rabbitmq.evaluate("ok = no")
    assert own_stack.create_vhost("again") == own_stack.create_vhost("again")
    for _ in range(2):
        own_stack.delete_vhost(own_stack.rabbitmq.vhost_url("again"))
    assert "again" not in own_stack.rabbitmq.evaluate("rabbit_vhost:list_names()")


def test_settings_reach_the_servers_which_listen_on_loopback_only(own_stack):
    assert query(own_stack.database_url, "SHOW max_connections") == [("40",)]
    assert query(own_stack.database_url, "SHOW fsync") == [("on",)]
    ports = (own_stack.postgres.port, own_stack.rabbitmq.port, own_stack.rabbitmq.dist_port)
    for port in (*ports, own_stack.rabbitmq.epmd_port):
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection((elsewhere(), port), timeout=DEADLINE).close()


def elsewhere() -> str:
    """An address of this machine that is not 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return probe.getsockname()[0]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_postgres_comes_back_with_its_port_and_data(own_stack, end):
    server, url = own_stack.postgres, own_stack.create_database()
    query(url, "CREATE TABLE kept AS SELECT 7 AS n")
    family = [server.pid, *(child.pid for child in descendants(server.pid))]
    getattr(server, end)()
    assert server.pid is None
    assert [pid for pid in family if start_time(pid)] == []
    server.start()
    assert query(url, "SELECT n FROM kept") == [(7,)]
    own_stack.drop_database(url)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_rabbitmq_comes_back_with_its_port_and_data_and_takes_its_epmd_along(own_stack, end):
    server, url = own_stack.rabbitmq, own_stack.create_vhost()
    with closing(amqp(url)) as link:
        channel = link.channel()
        channel.confirm_delivery()
        # Classic: after a kill in its first moments, a quorum queue of RabbitMQ 3.10 waits for an election.
        channel.queue_declare("kept", durable=True)
        channel.basic_publish("", "kept", b"7", pika.BasicProperties(delivery_mode=2), mandatory=True)
    # Before RabbitMQ 4.3, Mnesia writes a new queue's definition within two seconds, possibly after a confirm.
    mnesia = "lists:keymember(mnesia, 1, application:which_applications())"
    assert server.evaluate(f"{mnesia} andalso mnesia:sync_log()") in {"ok", "false"}
    family = [server.pid, *(child.pid for child in descendants(server.pid))]
    getattr(server, end)()
    assert server.pid is None
    assert wait_until(lambda: not any(map(start_time, family)), DEADLINE)
    assert is_free(server.port)
    assert is_free(server.epmd_port)
    server.start()
    with closing(amqp(url)) as link:
        assert link.channel().basic_get("kept")[2] == b"7"
    own_stack.delete_vhost(url)


def test_two_stacks_live_side_by_side_and_one_closes_alone(own_stack, base):
    said: list[str] = []
    with start_stack(root=base, purpose="other", fast=True, say=said.append) as other:
        assert query(other.database_url, "SHOW fsync") == [("off",)]
        assert other.directory.parent == own_stack.directory.parent
        assert other.amqp_url != own_stack.amqp_url
        pids = (other.postgres.pid, other.rabbitmq.pid)
    assert said == ["Starting a private PostgreSQL", "Starting a private RabbitMQ (a few seconds)"]
    assert not any(map(start_time, pids))
    assert not other.directory.exists()
    assert query(own_stack.database_url, "SELECT 1") == [(1,)]
    with socket.create_connection((LOOPBACK, own_stack.rabbitmq.port), timeout=DEADLINE):
        pass


def test_given_urls_are_used_and_left_running(own_stack, base):
    with start_stack(root=base, database_url=own_stack.database_url, amqp_url=own_stack.amqp_url) as borrowed:
        assert (borrowed.postgres, borrowed.rabbitmq) == (None, None)
        url = borrowed.create_database()
        assert query(url, "SELECT 1") == [(1,)]
        borrowed.drop_database(url)
    assert own_stack.postgres.running
    assert own_stack.rabbitmq.running


def test_vhosts_of_an_external_broker_use_the_management_api(own_stack):
    (port,) = free_ports(1)
    listener = [f"management.tcp.port = {port}", f"management.tcp.ip = {LOOPBACK}"]
    node = RabbitServer(
        own_stack.ledger, find_rabbitmq(), name="managed", plugins=["rabbitmq_management"], config=listener
    )
    node.start()
    vhosts = ManagedVhosts(node.url, f"http://{LOOPBACK}:{port}")
    url = vhosts.create("a vhost/of ours")
    assert url.endswith("/a%20vhost%2Fof%20ours")
    amqp(url).close()
    vhosts.delete(name_of(url))
    assert node.ctl("list_vhosts").split() == ["name", "/"]
    node.kill()
    with pytest.raises(ServerFailed, match="rabbitmq_management"):
        vhosts.create("another")
