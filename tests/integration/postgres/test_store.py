"""Commands on a real database: order, idempotence, concurrency, and rows that Postgres refuses."""

import itertools
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from commands import EXAMPLES, histories
from hypothesis import HealthCheck, given, settings
from support import DEADLINE, connected, until

from scheduler.commands.apply_batch import apply_commands
from scheduler.domain.errors import Rejected, Unavailable
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import COMMAND_MODELS
from scheduler.postgres.connection import connect, transaction
from scheduler.postgres.jobs import store
from scheduler.postgres.jobs.store import check as check_database
from scheduler.postgres.wakeup import Wakeup

T = datetime(2026, 1, 1, tzinfo=UTC)
SOON = timedelta(seconds=1)
LAST = datetime(2999, 1, 1, tzinfo=UTC)
# A job of its own keeps each example apart from the others on the same database.
SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
OPTIONS = settings(deadline=None, suppress_health_check=SUPPRESSED)
# Columns that depend on the time of storing, not on the request.
STORED = {"id", "created_at", "finished_at", "trigger_at", "wake_at", "updated_at"}


def incoming(job_id, kind, second, fields):
    command = COMMAND_MODELS[kind](id=job_id, issued_at=T + timedelta(seconds=second), **fields)
    return Incoming(command, str(job_id))


def row(url, job_id):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT row_to_json(jobs) FROM jobs WHERE id = %s", (str(job_id),))
        found = cursor.fetchone()
    return {key: value for key, value in found[0].items() if key not in STORED}


def one_by_one(connection, commands):
    for command in commands:
        apply_commands(connection, [command], SOON)


def check(url, history, seed):
    connections = [connect(url, "test") for _ in range(3)]
    try:
        expected_id = uuid4()
        for each in history:
            apply_commands(connections[0], [incoming(expected_id, *each)], SOON)
        expected = row(url, expected_id)
        shuffled = random.Random(seed)
        orders = list(itertools.permutations(history))
        for order in shuffled.sample(orders, min(6, len(orders))):
            commands = [*order, shuffled.choice(order)]
            # One consumer, one by one; one consumer, one batch; three consumers at once.
            one, batch, many = uuid4(), uuid4(), uuid4()
            one_by_one(connections[0], [incoming(one, *command) for command in commands])
            apply_commands(connections[0], [incoming(batch, *command) for command in commands], SOON)
            with ThreadPoolExecutor(3) as pool:
                parts = [[incoming(many, *command) for command in commands[n::3]] for n in range(3)]
                list(pool.map(one_by_one, connections, parts))
            for job_id in (one, batch, many):
                assert row(url, job_id) == expected
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("many", [1, store.MANY])  # from this number on a consumer may assume new jobs
@given(history=histories())
@settings(OPTIONS, max_examples=15, derandomize=True)
def test_the_final_row_is_the_same_in_any_order_through_any_number_of_consumers(
    database_url, monkeypatch, many, history
):
    monkeypatch.setattr(store, "MANY", many)
    check(database_url, history, seed=1)


def requests(ids):
    asked = {"job_type": "t", "run_at": "2999-01-01T00:00:00Z"}
    return [incoming(job_id, "request", 1, asked) for job_id in ids]


def test_the_lookup_is_skipped_after_a_batch_of_new_jobs(database_url):
    first, second, third = ([uuid4() for _ in range(store.MANY)] for _ in range(3))
    with closing(connect(database_url, "test")) as session:
        for ids in (first, second):
            assert {command.status for command in apply_commands(session, requests(ids), SOON)} == {"scheduled"}
        with transaction(session) as cursor:
            assert store.lock(cursor, list(map(str, first)), requested=True) == {}, "it looked"
            assert len(store.lock(cursor, list(map(str, first)), requested=True)) == len(first), "it hoped twice"
            store.save(cursor, {}, {})
        mixed = [*third[:-2], *first[:2]]
        statuses = [command.status for command in apply_commands(session, requests(mixed), SOON)]
        assert statuses == ["scheduled"] * (len(mixed) - 2) + ["unchanged"] * 2
        with transaction(session) as cursor:
            assert len(store.lock(cursor, list(map(str, first)), requested=True)) == len(first), "too few"
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobs")
        assert cursor.fetchone() == (3 * store.MANY - 2,)


@pytest.mark.deep
@given(history=histories())
@settings(OPTIONS, max_examples=EXAMPLES or 2000)
def test_the_same_with_many_more_histories(database_url, history):
    check(database_url, history, seed=None)


def test_a_row_that_postgres_refuses_is_rejected_alone(database_url):
    connection = connect(database_url, "test")
    good, bad = uuid4(), uuid4()

    def request(job_id, **extra):
        command = COMMAND_MODELS["request"](id=job_id, job_type="a", run_at="2027-01-01T00:00:00Z")
        return Incoming(command, str(command.id), **extra)

    batch = [request(good), request(bad, payload="{not json"), request(uuid4())]
    answers = apply_commands(connection, batch, SOON)
    assert [type(answer) is Rejected for answer in answers] == [False, True, False]
    assert "Postgres cannot store it" in str(answers[1])
    assert row(database_url, good)["status"] == "pending"
    connection.close()


@pytest.mark.parametrize("many", [2, store.MANY])  # from this number on a consumer may assume new jobs
def test_many_consumers_on_the_same_jobs_at_once_lose_nothing(database_url, monkeypatch, many):
    """Eight connections race to create and change the same twenty jobs; the newest request wins each."""
    monkeypatch.setattr(store, "MANY", many)
    ids = [uuid4() for _ in range(20)]
    commands = [
        incoming(job_id, "request", second, {"job_type": f"v{second}", "run_at": "2027-06-01T00:00:00Z"})
        for second in range(8) for job_id in ids
    ]
    random.Random(7).shuffle(commands)

    def work(part):
        connection = connect(database_url, "test")
        for start in range(0, len(part), 5):
            apply_commands(connection, part[start : start + 5], SOON)
        connection.close()

    threads = [threading.Thread(target=work, args=(commands[n::8],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row(database_url, job_id)["job_type"] for job_id in ids} == {"v7"}


def test_producers_are_woken_for_due_and_unchanged_jobs(database_url):
    soon, later = uuid4(), uuid4()
    requests = {
        each: incoming(each, "request", 1, {"job_type": "t", "run_at": (datetime.now(UTC) + ahead).isoformat()})
        for each, ahead in ((soon, timedelta(0)), (later, timedelta(hours=1)))
    }
    connection = connect(database_url, "test")
    try:
        with closing(Wakeup(database_url, "listening")) as woken:
            assert woken.wait(0) == {}
            apply_commands(connection, [requests[later]], SOON)
            # Wake-ups arrive in commit order: one from the other would arrive first.
            with connected(database_url) as by_hand, by_hand.cursor() as cursor:
                cursor.execute("SELECT pg_notify('scheduler_wakeup', %s)", (f"jobs {LAST.isoformat()}",))
            assert woken.wait(DEADLINE) == {"jobs": LAST}
            apply_commands(connection, [requests[soon]], SOON)
            assert "jobs" in woken.wait(DEADLINE)
            # The same again changes nothing, but its lock may have kept a producer away.
            apply_commands(connection, [requests[soon]], SOON)
            assert "jobs" in woken.wait(DEADLINE)
    finally:
        connection.close()


def test_an_unencodable_command_is_rejected_alone(latin1_database):
    connection = connect(latin1_database, "test")
    good, bad = uuid4(), uuid4()
    answers = apply_commands(connection, [
        incoming(job_id, "request", 1, {"job_type": name, "run_at": "2027-06-01T00:00:00Z"})
        for job_id, name in ((good, "café"), (bad, "€"))
    ], SOON)
    assert [type(answer) is Rejected for answer in answers] == [False, True]
    assert row(latin1_database, good)["job_type"] == "café"
    connection.close()


def test_the_storage_check_stores_nothing(database_url, empty_database):
    connection = connect(database_url, "test")
    check_database(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobs")
        assert cursor.fetchone() == (0,)
    connection.close()
    connection = connect(database_url, "test", default_transaction_read_only="on")
    with pytest.raises(Unavailable, match="read-only"):
        check_database(connection)
    connection.close()
    connection = connect(empty_database, "test")
    with pytest.raises(Unavailable, match="does not exist"):
        check_database(connection)
    connection.close()


def test_a_cancel_leaves_the_open_run_of_another_tenant_alone(database_url):
    """The row of the run's job may be gone, and the id be free for anybody."""
    job_id = str(uuid4())
    with connected(database_url) as connection, connection.cursor() as cursor:
        for tenant in ("one", "two"):
            cursor.execute(
                "INSERT INTO runs (event_id, status, job_id, job_type, due_at, origin, policy, event, tenant)"
                " VALUES (gen_random_uuid(), 'running', %s, 't', now(), 'schedule', '{}', '{}', %s)",
                (job_id, tenant),
            )
        with closing(connect(database_url, "test")) as storing:
            cancel = Incoming(COMMAND_MODELS["cancel"](id=job_id, tenant="two"), job_id, tenant="two")
            [verdict] = apply_commands(storing, [cancel], SOON)
        cursor.execute("SELECT tenant, status FROM runs ORDER BY tenant")
        assert cursor.fetchall() == [("one", "running"), ("two", "cancelled")]
    assert verdict.status == "cancelled"


@pytest.fixture
def notifying(stack, database_url):
    """Another session, which wrote and notified, waits in its commit: no other NOTIFY can commit."""
    if stack.postgres is None:
        pytest.skip("changes a setting of the server")

    def configure(standby):
        with connected(stack.postgres.url) as admin, admin.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET synchronous_standby_names = %s", (standby,))
            cursor.execute("SELECT pg_reload_conf()")

    def notify():
        with connected(database_url) as connection, connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = on")
            pid.append(connection.info.backend_pid)
            cursor.execute("CREATE TABLE written (); NOTIFY another")

    def waits():
        with connected(database_url) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_stat_activity WHERE pid = ANY (%s) AND wait_event = 'SyncRep'", (pid,))
            return cursor.fetchall()

    pid: list[int] = []
    configure("nobody")
    session = threading.Thread(target=notify)
    try:
        until(lambda: _setting(database_url, "synchronous_standby_names") == "nobody", "the setting")
        session.start()
        until(waits, "the commit to wait")
        yield
    finally:
        configure("")
        session.join()


def _setting(url, name):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", (name,))
        return cursor.fetchall()[0][0]


@pytest.mark.usefixtures("notifying")
def test_storing_does_not_queue_behind_another_commit_with_a_notification(database_url):
    with closing(connect(database_url, "test", lock_timeout="50ms")) as connection:
        body = json.dumps({"id": str(uuid4()), "job_type": "a", "run_at": "2026-01-01T00:00:00Z"}).encode()
        command = parse_command("request", body, max_payload_bytes=1000)
        [outcome] = apply_commands(connection, [command], SOON)
        assert outcome.status == "scheduled"
    with connected(database_url) as other, other.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM scheduler.jobs")
        assert cursor.fetchall() == [(1,)]


def test_defaults_of_the_database_do_not_change_our_sessions(database_url):
    name = database_url.rpartition("/")[2]
    with connected(database_url) as admin:
        for setting, value in (("default_transaction_isolation", "serializable"), ("array_nulls", "off")):
            admin.cursor().execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    with closing(connect(database_url, "test")) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('transaction_isolation'), '{NULL}'::text[] = ARRAY[NULL]::text[]")
        assert cursor.fetchone() == ("read committed", True)
