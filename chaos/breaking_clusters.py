"""Faults in clusters: a RabbitMQ leader dies, a Postgres standby takes over."""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import PostgresServer, RabbitServer, Stack
from scheduler.dev.servers.binaries import find_postgres, find_rabbitmq


@fault("cluster", "three RabbitMQ nodes with quorum queues, the leader killed")
def cluster(stack: Stack, result: Result, scale: float) -> None:
    with three_nodes(stack) as nodes:
        # Declared through the second node, so it leads all queues. The first one runs epmd for the others.
        urls = [nodes[n].url for n in (1, 0, 2)]
        world = World(stack, amqp_url=",".join(urls), due_queue_type="quorum")
        try:
            world.start()
            time.sleep(4)
            leader = leader_of(nodes[0], "mainapp_due")
            victim = next(node for node in nodes if node.nodename == leader)
            result.notes.append(f"leader {leader.partition('-')[0]} killed")
            victim.kill()
            killed = time.monotonic()
            emitted = {replica.name: replica.metric("jobs_due_total") for replica in world.producers}
            for replica in world.producers:
                wait_for(lambda replica=replica: replica.metric("jobs_due_total") > emitted[replica.name] + 20,
                         f"{replica.name} emits without the former leader", 60)
            result.notes.append(f"every producer emitted again {time.monotonic() - killed:.1f} s later")
            time.sleep(max(0.0, 12 * scale - (time.monotonic() - killed)))
            victim.start()
            time.sleep(2)
            world.settle(result, within=60)
            result.notes.append(f"new leader {leader_of(nodes[0], 'mainapp_due').partition('-')[0]}")
        finally:
            world.close(result)


@contextlib.contextmanager
def three_nodes(stack: Stack) -> Iterator[list[RabbitServer]]:
    """Start a cluster of three nodes on this machine."""
    cookie, token = secrets.token_hex(16), secrets.token_hex(3)
    names = [f"node{n}-{token}@localhost" for n in (1, 2, 3)]
    config = ["cluster_formation.peer_discovery_backend = classic_config"] + [
        f"cluster_formation.classic_config.nodes.{n} = {name}" for n, name in enumerate(names, 1)
    ]
    nodes: list[RabbitServer] = []
    try:
        for n, name in enumerate(names, 1):
            node = RabbitServer(stack.ledger, find_rabbitmq(), name=f"{token}-{n}", config=config, nodename=name,
                                cookie=cookie, epmd_port=nodes[0].epmd_port if nodes else None)
            if nodes:
                node._password = nodes[0]._password  # noqa: SLF001 - the cluster has the first node's user
            nodes.append(node)
            node.start()
        running = "length([N || N <- [node() | nodes()], rabbit:is_running(N)])"  # also without Mnesia, from 4.3 on
        wait_for(lambda: nodes[0].evaluate(running).strip() == "3", "three nodes", 60)
        yield nodes
    finally:
        for node in reversed(nodes):
            node.kill()


def leader_of(node: RabbitServer, queue: str) -> str:
    """Return the name of the node that leads a quorum queue."""
    answer = node.evaluate(
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)), '
        "{_, N} = amqqueue:get_pid(Q), atom_to_list(N)"
    )
    return answer.strip('"')


@fault("failover", "Postgres primary with a synchronous standby: the primary killed, the standby promoted")
def failover(stack: Stack, result: Result, scale: float) -> None:
    with primary_and_standby(stack) as (primary, standby):
        at = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = primary.url.replace(f"127.0.0.1:{primary.port}", at) + "?target_session_attrs=read-write"
        world = World(stack, database_url=url)
        try:
            world.start()
            time.sleep(4)
            sync = world.sql("SELECT application_name, sync_state FROM pg_stat_replication")
            result.notes.append(f"standby {sync[0][1]}")
            if sync[0][1] != "sync":
                result.failures.append(f"the standby is {sync}")
            primary.kill()
            time.sleep(2 * scale)
            began = time.monotonic()
            promote(standby)
            result.notes.append(f"promoted in {time.monotonic() - began:.1f} s")
            time.sleep(5 * scale)
            world.settle(result, within=60)
        finally:
            world.close(result)


@contextlib.contextmanager
def primary_and_standby(
    stack: Stack, *, synchronous: bool = True
) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Start a primary with a standby, for which its commits wait if it is synchronous."""
    binaries, token = find_postgres(), secrets.token_hex(3)
    settings = {"track_commit_timestamp": "on", "wal_level": "replica", "max_wal_senders": "5"}
    primary = PostgresServer(stack.ledger, binaries, name=f"{token}-primary", settings=settings)
    standby = PostgresServer(stack.ledger, binaries, name=f"{token}-standby", settings=settings)
    try:
        primary.start()
        standby._password = primary._password  # noqa: SLF001 - a copy has the same users
        copy(stack, primary, standby)
        standby.start()
        if synchronous:
            primary.settings["synchronous_standby_names"] = "*"
            primary.restart()
        yield primary, standby
    finally:
        standby.kill()
        primary.kill()


def copy(stack: Stack, primary: PostgresServer, standby: PostgresServer) -> None:
    """Create the standby's data directory with pg_basebackup."""
    standby.directory.mkdir(mode=0o700)
    account = standby._account  # noqa: SLF001 - the server does the same
    if account:
        os.chown(standby.directory, account.uid, account.gid)
    done = stack.ledger.spawn(
        [standby._binaries / "pg_basebackup", "-D", standby.data, "-R", "-X", "stream", "-c", "fast",  # noqa: SLF001 - as above
         "-d", primary.url.removesuffix("/postgres")],
        output=standby.log, account=account, cwd=standby.directory, env={**os.environ, "LC_ALL": "C"},
    ).wait(60)
    if done != 0:
        raise RuntimeError(f"pg_basebackup failed: {standby.log.read_text(encoding='utf-8')[-500:]}")


def promote(standby: PostgresServer) -> None:
    """Promote the standby."""
    import psycopg2  # noqa: PLC0415 - only this fault needs it

    with contextlib.closing(psycopg2.connect(standby.url)) as connection:
        connection.autocommit = True
        connection.cursor().execute("SELECT pg_promote(true, 30)")
