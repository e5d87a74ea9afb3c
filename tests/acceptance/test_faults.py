"""The quick faults of `make chaos`, in short; and a regression test for every bug that the suite has found."""

import signal
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime

import pytest
from support import DEADLINE, Host, Process, Sidecar, connected, iso, patiently, until, utc

from chaos.account import Result
from chaos.breaking_postgres import OUR_SESSIONS
from chaos.breaking_processes import stop_in_a_batch
from chaos.breaking_runs import under_results
from chaos.proxy import Proxy
from chaos.replicas import wait_for
from chaos.suite import SETTINGS
from chaos.world import World
from scheduler.dev.servers import start_stack
from scheduler.domain.errors import Unavailable
from scheduler.postgres import client_timeout
from scheduler.postgres.claims import LONG_AGO, ClaimSession
from scheduler.postgres.connection import connect, translated
from scheduler.postgres.jobs.due import claim
from scheduler.postgres.migrate import migrate
from scheduler.postgres.wakeup import Wakeup
from scheduler.rabbit import topology

REJECTED = "scheduler_commands_rejected_total"


@pytest.fixture(scope="module")
def breakable():
    """Servers of this module's own: they are stopped and killed here."""
    with start_stack(purpose="faults", postgres_settings=SETTINGS) as stack:
        yield stack


def test_no_event_is_lost_or_early_under_faults(breakable):
    """What `make chaos` does for minutes, in seconds: one world, one fault after the other."""
    world = World(breakable, consumers=1, producers=2, one_shots=40, recurring=2, cancels=5, count=5)
    result = Result("short", "the quick faults in a row")
    try:
        world.start()
        stop_in_a_batch(world, world.producers[1])
        for victim in (world.producers[0], world.consumers[0]):
            victim.end(signal.SIGKILL)
        wait_for(world.consumers[0].ready, "the consumer ready again", DEADLINE)
        world.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OUR_SESSIONS}")
        wait_for_an_event(world)
        breakable.rabbitmq.evaluate('rabbit_networking:close_all_connections(<<"test">>)')
        wait_for_an_event(world)
        breakable.postgres.restart("immediate")
        breakable.rabbitmq.restart("fast")
        world.producers[1].send(signal.SIGCONT)
        world.settle(result, within=2 * DEADLINE)
    finally:
        world.close(result)
    assert result.passed, result
    assert result.expected > 50


def test_no_run_is_lost_early_or_over_retried_under_faults(breakable):
    """The same for tracked jobs: workers, consumers and producers die; results arrive late, twice and shuffled."""
    def breaking(world, host):
        for victim in (world.producers[0], world.consumers[0], world.producers[1]):
            host.worker_pool.kill()
            seen = len(host.runs.finished)
            wait_for(lambda: len(host.runs.finished) > seen + 5, "more runs ended", 2 * DEADLINE)  # noqa: B023 - at once
            victim.end(signal.SIGKILL)
        breakable.postgres.restart("immediate")

    result = Result("short", "runs, in short")
    under_results(breakable, result, breaking, within=3 * DEADLINE, consumers=1, producers=2, workers=3,
                  one_shots=15, recurring=0, delay=1.0)
    assert result.passed, result
    assert result.expected > 20


def wait_for_an_event(world):
    """Wait until an event that was emitted after this call arrives."""
    now, events = datetime.now(UTC), world.host.records.events
    wait_for(lambda: events and events[-1].emitted_at > now, "another event", DEADLINE)


# --- regressions


@pytest.fixture
def behind(stack, database_url, amqp_url):
    """A proxy before each server, and a sidecar that knows only the proxies."""
    if stack.rabbitmq is None or stack.postgres is None:
        pytest.skip("needs private servers")
    database, broker = Proxy(stack.postgres.port), Proxy(stack.rabbitmq.port)
    sidecar = Sidecar(
        database_url.replace(f":{stack.postgres.port}/", f":{database.port}/"),
        amqp_url.replace(f":{stack.rabbitmq.port}/", f":{broker.port}/"),
    )
    yield sidecar, database, broker
    for proxy in (database, broker):
        proxy.thaw()
    sidecar.close()
    for proxy in (database, broker):
        proxy.close()


# The driver's connection is closed after 20 seconds; here never, so that only the signal ends the process.
FOREVER = """
from scheduler.cli import main
from scheduler.postgres import client_timeout
client_timeout.LIMIT_SECONDS = 1e9
raise SystemExit(main())
"""


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_sigterm_ends_a_process_whose_database_never_answers(behind, host, role):
    """The driver waits in C, where no Python signal handler runs: the signal was handled only afterwards."""
    sidecar, database, _ = behind
    process = Process(role, sidecar.env, command=[sys.executable, "-c", FOREVER]).ready()
    sidecar.processes.append(process)
    database.freeze()
    host.request(run_at=iso(utc()))
    until(lambda: len(database.held) >= 2, "the work and the maintenance wait for an answer")
    # The number of seconds: tests/unit/processes/test_runtime.py and `make chaos` test this.
    assert process.stop(signal.SIGTERM) == 0


def test_a_migration_that_is_stopped_while_it_waits_does_not_claim_success(behind):
    sidecar, database, _ = behind
    database.freeze()
    process = Process("migrate", sidecar.env)
    until(lambda: database.held, "it waits for an answer")
    assert process.stop(signal.SIGTERM) != 0


def test_a_statement_without_a_response_is_abandoned(behind, monkeypatch):
    """Through a proxy that still acknowledges every packet neither keepalives nor the server's timeouts help."""
    sidecar, database, _ = behind
    with closing(connect(sidecar.database_url, "test")) as connection:
        connection.cursor().execute("SELECT 1")
        database.freeze()
        monkeypatch.setattr(client_timeout, "LIMIT_SECONDS", 1.0)  # not before: a busy database answers, but late
        answered = threading.Timer(DEADLINE, database.thaw)  # at the latest by then, if it does not time out
        answered.start()
        with pytest.raises(Unavailable), translated():
            connection.cursor().execute("SELECT 1")
        answered.cancel()
        answered.join()


def test_first_and_last_datetimes_are_handled(database_url):
    """The oldest instant that a host can name was never claimed; a row parked at infinity ended every producer."""
    with connected(database_url) as connection, closing(ClaimSession(database_url, "test")) as session:
        connection.cursor().execute(
            "INSERT INTO jobs (id, job_type, next_run_at) VALUES "
            "(gen_random_uuid(), 'first', '0001-01-01 00:00Z'), (gen_random_uuid(), 'parked', 'infinity')"
        )
        claimed = claim(session, 10)
        assert [job.definition.job_type for job in claimed.things] == ["first"]
        assert claimed.seconds_to_next is None


def test_a_manual_notify_does_not_crash_a_producer(database_url):
    with connected(database_url) as connection, closing(Wakeup(database_url, "test")) as wakeup:
        for payload in ("", "now", "2026-01-01T00:00:00"):
            connection.cursor().execute("SELECT pg_notify('scheduler_wakeup', %s)", (payload,))
            assert wakeup.wait(DEADLINE) == {None: LONG_AGO}
        connection.cursor().execute("SELECT pg_notify('scheduler_wakeup', 'jobs 2026-01-01T00:00:00+00:00')")
        assert wakeup.wait(DEADLINE) == {"jobs": datetime(2026, 1, 1, tzinfo=UTC)}
        assert wakeup.wait(0.0) == {}


def test_a_consumer_without_a_database_requeues_commands(behind, host, sidecar):
    """Another consumer reaches the database: it must not wait for the one that does not."""
    cut_off, database, _ = behind
    lonely = cut_off.start("consumer").ready()
    database.close()
    database.freeze()
    with connected(sidecar.database_url) as connection:
        connection.cursor().execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OUR_SESSIONS}")
    job = host.request(run_at=iso(utc(hours=1)))
    until(lambda: "postgres" in lonely.http("/readyz")[1], "the consumer has lost its database")
    sidecar.start("consumer").ready()
    sidecar.stored(job)
    assert lonely.http("/livez")[0] == 200


def test_a_broker_alarm_delays_rejections_without_requeueing(breakable):
    """Commands that need an answer wait, unacknowledged; given back they would use up their delivery limit."""
    database_url, amqp_url = breakable.create_database(), breakable.create_vhost()
    patiently(lambda: migrate(database_url))
    patiently(lambda: topology.declare(amqp_url, queue_type="quorum", due_queue_type="default"))
    sidecar = Sidecar(database_url, amqp_url)
    host = Host(amqp_url)
    try:
        consumer = sidecar.start("consumer").ready()
        for _ in range(5):
            host.publish("request", b"poison")
        until(lambda: consumer.metric(REJECTED) == 5, "the first rejected")
        consumer.popen.send_signal(signal.SIGSTOP)
        for _ in range(5):
            host.publish("request", b"poison")
        breakable.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.000001)")
        until(lambda: "memory" in breakable.rabbitmq.evaluate("rabbit_alarm:get_alarms()"), "the alarm")
        consumer.popen.send_signal(signal.SIGCONT)
        until(lambda: "blocks publishers" in consumer.http("/readyz")[1], "it says that it is blocked")
        assert consumer.metric(REJECTED) == 5
        breakable.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4)")
        until(lambda: consumer.metric(REJECTED) == 10, "the others rejected")
        consumer.ready()
        dead: list[bytes] = []
        until(lambda: dead.extend(host.drain("scheduler_dead")) or len(dead) >= 10, "the dead letters")
        assert len(dead) == 10
        assert not [line for line in consumer.lines if line["event"].startswith("RabbitMQ unavailable")]
    finally:
        breakable.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4)")
        host.close()
        sidecar.close()


def test_missing_confirms_are_reported_as_rabbitmq(behind, host):
    """Half-open to RabbitMQ: the producer closes the connection when its confirms do not arrive."""
    cut_off, _, broker = behind
    producer = cut_off.start("producer").ready()
    cut_off.start("consumer").ready()
    broker.freeze()
    cut_off.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'a', now())")
    told = until(lambda: (found := producer.http("/readyz"))[0] == 503 and found[1], "the producer notices")
    assert "postgres" not in told
    broker.thaw()
    assert host.due()[0]["job_type"] == "a"
    producer.ready()
