"""The inbox and the outbox through every way a host may hold its connection."""

import json
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import django
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
import sqlalchemy.orm
from django.conf import settings
from django.db.utils import ConnectionHandler
from support import DEADLINE, connected, until

from scheduler.client import CommandRejected, NotInTransaction, Outbox, Relay, forget, once, tables
from scheduler.testing import Sidecar


@pytest.fixture(scope="module")
def host_tables(stack):
    url = stack.create_database()
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(tables())
    yield url
    stack.drop_database(url)


@pytest.fixture
def host_database(host_tables):
    with connected(host_tables) as connection, connection.cursor() as cursor:
        cursor.execute("TRUNCATE scheduler_handled, scheduler_outbox")
    return host_tables


class Rollback(Exception):  # noqa: N818 - it is no error
    """Raised by a test inside its transaction."""


@contextmanager
def with_psycopg2(url):
    connection = psycopg2.connect(url)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@contextmanager
def with_psycopg2_cursor(url):
    with with_psycopg2(url) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def with_psycopg2_dict_cursor(url):
    with with_psycopg2(url) as connection, connection.cursor(
        cursor_factory=psycopg2.extras.RealDictCursor
    ) as cursor:
        yield cursor


@contextmanager
def with_psycopg3(url):
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def with_psycopg3_autocommit(url):
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        yield connection


@contextmanager
def with_psycopg3_cursor(url):
    with psycopg.connect(url) as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        yield cursor


@contextmanager
def with_sqlalchemy(url, driver="psycopg"):
    engine = sqlalchemy.create_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def with_sqlalchemy_session(url):
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    try:
        with sqlalchemy.orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


def django_connection(url):
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = urlsplit(url)
    return ConnectionHandler({"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname,
        "PORT": parts.port, "USER": parts.username, "PASSWORD": parts.password or "",
    }})["default"]


@contextmanager
def with_django(url):
    connection = django_connection(url)
    try:
        with atomic(connection):
            yield connection
    finally:
        connection.close()


@contextmanager
def with_django_cursor(url):
    with with_django(url) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def atomic(connection):
    """The behaviour of transaction.atomic(), for a connection outside of django.db.connections."""
    connection.set_autocommit(False)
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    else:
        connection.commit()


WAYS = [
    with_psycopg2, with_psycopg2_cursor, with_psycopg2_dict_cursor, with_psycopg3, with_psycopg3_autocommit,
    with_psycopg3_cursor, with_sqlalchemy, with_sqlalchemy_session, with_django, with_django_cursor,
]


def rows(url, statement):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_inbox_and_outbox_belong_to_the_hosts_transaction(host_database, way):
    event, job = uuid4(), uuid4()
    with suppress(Rollback), way(host_database) as database:
        assert once(database, event)
        Outbox(database).cancel(job)
        raise Rollback
    assert rows(host_database, "SELECT * FROM scheduler_handled") == []
    assert rows(host_database, "SELECT * FROM scheduler_outbox") == []
    with way(host_database) as database:
        assert once(database, event)
        assert not once(database, event)
        assert once(database, event, scope="mail")
        Outbox(database).schedule(job, "invoice.reminder", {"rate": "5 %s"}, every=60, correlation_id="c-1")
    with way(host_database) as database:
        assert not once(database, str(event))
    assert len(rows(host_database, "SELECT * FROM scheduler_handled")) == 2
    [(kind, body, correlation)] = rows(host_database, "SELECT kind, body, correlation_id FROM scheduler_outbox")
    assert (kind, correlation) == ("request", "c-1")
    assert body == {"id": str(job), "job_type": "invoice.reminder", "payload": {"rate": "5 %s"}, "every": 60}


@pytest.mark.parametrize("driver", [psycopg2, psycopg], ids=["psycopg2", "psycopg3"])
def test_a_connection_that_commits_by_itself_is_refused(host_database, driver):
    connection = driver.connect(host_database)
    connection.autocommit = True
    with pytest.raises(NotInTransaction, match="transaction"):
        once(connection, uuid4())
    connection.close()


def test_django_outside_atomic_is_refused(host_database):
    connection = django_connection(host_database)
    with pytest.raises(NotInTransaction, match="atomic"):
        Outbox(connection).cancel(uuid4())
    connection.close()


def test_a_command_that_would_be_rejected_is_never_written(host_database):
    with with_psycopg3(host_database) as connection, pytest.raises(CommandRejected):
        Outbox(connection).schedule(uuid4(), "test.job", cron="61 * * * *")


def test_two_deliveries_of_one_event_at_the_same_time_take_effect_once(host_database):
    event, results = uuid4(), []

    def second():
        with with_psycopg3(host_database) as connection:
            results.append(once(connection, event))

    with with_psycopg3(host_database) as first:
        assert once(first, event)
        thread = threading.Thread(target=second)
        thread.start()
        until(lambda: rows(host_database, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"),
              "the second delivery to wait for the first")
    thread.join(DEADLINE)
    assert results == [False]


def test_old_events_are_forgotten(host_database):
    with with_psycopg3(host_database) as connection:
        once(connection, uuid4())
        connection.execute("UPDATE scheduler_handled SET done_at = now() - interval '31 days'")
        once(connection, uuid4())
        forget(connection, older_than=timedelta(days=30))
    assert len(rows(host_database, "SELECT * FROM scheduler_handled")) == 1


@pytest.fixture
def relay(host_database):
    """Make relays that are closed in the end."""
    made = []

    def make(url, driver=psycopg, **options):
        made.append(Relay(lambda: driver.connect(host_database), url, timeout=0.5, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("driver", [psycopg2, psycopg], ids=["psycopg2", "psycopg3"])
def test_the_relay_sends_what_was_committed_with_the_time_of_writing(
    host_database, amqp_url, host, relay, driver
):
    job = uuid4()
    with with_psycopg3(host_database) as connection:
        Outbox(connection).schedule(job, "test.job", {"a": 1}, every=60, headers={"traceparent": "00-1-2-01"})
        Outbox(connection).cancel(job, correlation_id="c-2")
        Outbox(connection).retry(job)
    with connected(host_database) as plain, plain.cursor() as cursor:  # from any other language
        cursor.execute("INSERT INTO scheduler_outbox (kind, body) VALUES ('pause', %s)",
                       (' { "id": "x", "payload": 1.10 } ',))
    carrier = relay(amqp_url, driver)
    assert carrier.run_once() == 4
    assert carrier.run_once() == 0
    first, second, retry, third = (host.get("scheduler_inbox") for _ in range(4))
    assert [each[0].routing_key for each in (first, second, third)] == ["request", "cancel", "pause"]
    assert first[1].headers["traceparent"] == "00-1-2-01"
    assert (retry[0].routing_key, retry[1].type) == ("retry", "ScheduleRetry")
    assert json.loads(retry[2])["event_id"] == str(job)
    assert (second[1].correlation_id, second[1].type) == ("c-2", "ScheduleCancel")
    assert json.loads(first[2])["issued_at"] < json.loads(second[2])["issued_at"]
    assert third[2].startswith(b' { "id": "x", "payload": 1.10,"issued_at":"')
    assert rows(host_database, "SELECT * FROM scheduler_outbox") == []


def test_a_command_with_a_time_of_its_own_keeps_it(host_database, amqp_url, host, relay):
    moment = "2026-11-30T17:21:09.123456Z"
    with with_psycopg3(host_database) as connection:
        connection.execute("INSERT INTO scheduler_outbox (kind, body) VALUES ('cancel', %s)",
                           (json.dumps({"id": str(uuid4()), "issued_at": moment}),))
    relay(amqp_url).run_once()
    assert json.loads(host.get("scheduler_inbox")[2])["issued_at"] == moment


def test_without_a_sidecar_commands_stay_until_there_is_one(host_database, vhost, relay):
    with with_psycopg3(host_database) as connection:
        for _ in range(3):
            Outbox(connection).cancel(uuid4())
    carrier = relay(vhost)
    assert carrier.run_once() == 0
    stand = rows(host_database, "SELECT attempts, last_error FROM scheduler_outbox ORDER BY id")
    assert [attempts for attempts, _ in stand] == [1, 1, 1]
    assert "scheduler consumer" in stand[0][1]


def test_two_relays_share_the_work(host_database, amqp_url, host, relay):
    with with_psycopg3(host_database) as connection:
        for _ in range(60):
            Outbox(connection).cancel(uuid4())
    carriers = [relay(amqp_url, batch=5, interval=0.01).start() for _ in range(2)]
    until(lambda: not rows(host_database, "SELECT 1 FROM scheduler_outbox"), "an empty outbox")
    for carrier in carriers:
        carrier.stop()
    assert len({json.loads(host.get("scheduler_inbox")[2])["id"] for _ in range(60)}) == 60
    assert host.drain("scheduler_inbox") == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_test_kit_applies_the_outbox_of_an_open_transaction(host_database, way):
    sidecar = Sidecar(datetime(2026, 1, 1, tzinfo=UTC))
    with suppress(Rollback), way(host_database) as database:
        outbox, jobs = Outbox(database), [uuid4() for _ in range(3)]
        for job in jobs:
            outbox.schedule(job, "test.job", run_at="2026-01-02T00:00:00Z", correlation_id="mine")
        outbox.cancel(jobs[1])
        assert (sidecar.relay(database), sidecar.relay(database)) == (4, 0)
        sidecar.advance(days=1)
        assert {event.job_id for event in sidecar.due()} == {jobs[0], jobs[2]}
        raise Rollback
