"""The relay and the handlers are killed at random, and every effect happens exactly once."""

import os
import random
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from support import DEADLINE, connected, until

from scheduler.client import Outbox, job_id, tables

ROUNDS, JOBS, OCCURRENCES = 8, 6, 4
APP = Path(__file__).with_name("host_app.py")


class Killable:
    """A process that is started again each time it is killed."""

    def __init__(self, command, env):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")}
        self._command, self._env = command, clean | env
        self._start()

    def _start(self):
        self._process = subprocess.Popen(
            self._command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def _end(self, how):
        self._process.send_signal(how)
        _, errors = self._process.communicate(timeout=DEADLINE)
        return self._process.returncode, errors

    def kill(self):
        self._end(signal.SIGKILL)
        self._start()

    def stop(self):
        code, errors = self._end(signal.SIGTERM)
        assert code == 0, errors[-2000:]


@pytest.fixture
def host_database(stack):
    url = stack.create_database()
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(tables())
        # Nothing here forbids a second effect: only the inbox does.
        cursor.execute("CREATE TABLE effects (job_id uuid, due_at timestamptz)")
    yield url
    stack.drop_database(url)


def place_orders(url, number, expected):
    """One transaction that commits, with its reminders, and one that does not."""
    with psycopg.connect(url) as database:
        now = database.execute("SELECT date_trunc('second', now())").fetchone()[0]
        start: datetime = now + timedelta(seconds=2)
        for each in range(JOBS):
            job = job_id("order", number, each)
            Outbox(database).schedule(job, "effect", run_at=start, on_missed="all",
                                      rrule=f"FREQ=SECONDLY;COUNT={OCCURRENCES}")
            expected |= {(job, start + timedelta(seconds=k)) for k in range(OCCURRENCES)}
    with psycopg.connect(url) as database:
        for each in range(JOBS):
            Outbox(database).schedule(job_id("abandoned", number, each), "effect", run_at=start)
        database.rollback()


def test_effects_happen_exactly_once_under_kills(
    sidecar, host_database, amqp_url
):
    dice = random.Random(random.random())  # pytest-randomly prints the seed
    chance = threading.Event()
    sidecar.up()
    relay = Killable([sys.executable, "-m", "scheduler", "outbox"],
                     {"DATABASE_URL": host_database, "AMQP_URL": amqp_url, "SCHEDULER_POLL_INTERVAL_MS": "20"})
    handlers = Killable([sys.executable, str(APP)], {"HOST_DATABASE_URL": host_database, "AMQP_URL": amqp_url})
    expected: set = set()
    victims = [relay, handlers] * (ROUNDS // 2)
    dice.shuffle(victims)
    for number, victim in enumerate(victims):
        place_orders(host_database, number, expected)
        chance.wait(dice.uniform(0.0, 0.7))
        victim.kill()
    place_orders(host_database, len(victims), expected)  # takes effect when the last of them is reconnected

    def effects():
        with psycopg.connect(host_database) as database:
            return database.execute("SELECT job_id, due_at FROM effects").fetchall()

    until(lambda: set(effects()) >= expected, "every effect", within=2 * DEADLINE)
    relay.stop()
    handlers.stop()
    found = effects()
    assert set(found) == expected
    assert len(found) == len(expected), "some effect happened twice"
    with psycopg.connect(host_database) as database:
        assert database.execute("SELECT count(*) FROM scheduler_outbox").fetchone() == (0,)
