"""`scheduler outbox`: the relay as a separate process."""

import subprocess
import sys
from uuid import uuid4

import psycopg
import pytest
from support import DEADLINE, Process, connected, until

from scheduler.client import Outbox, tables


def test_the_tables_are_printed_for_psql():
    printed = subprocess.run(
        [sys.executable, "-m", "scheduler", "outbox", "--sql"], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == tables().strip()


def test_the_process_waits_for_its_table_relays_and_stops(empty_database, amqp_url, host):
    env = {"DATABASE_URL": empty_database, "AMQP_URL": amqp_url, "SCHEDULER_POLL_INTERVAL_MS": "20"}
    process = Process("outbox", env)
    until(lambda: any("scheduler outbox --sql" in line for line in process.raw), "advice about the missing table")
    with psycopg.connect(empty_database) as database:
        database.execute(tables())
        Outbox(database).cancel(uuid4())
    assert host.get("scheduler_inbox")[0].routing_key == "cancel"
    with connected(empty_database) as database, database.cursor() as cursor:
        count = "SELECT count(*) FROM scheduler_outbox"
        until(lambda: cursor.execute(count) or cursor.fetchone() == (0,), "it is deleted, and not resent")
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                       ("scheduler outbox",))
    with psycopg.connect(empty_database) as database:
        Outbox(database).pause(uuid4())
    assert host.get("scheduler_inbox")[0].routing_key == "pause"
    assert process.stop() == 0


@pytest.mark.parametrize(("name", "url", "code"), [
    ("DATABASE_URL", "postgresql://127.0.0.1:1/none", 69), ("AMQP_URL", "http://localhost", 78),
])
def test_exit_codes_of_the_outbox_process(name, url, code):
    process = Process("outbox", {name: url}, "--no-wait")
    assert process.popen.wait(DEADLINE) == code
    process.stop()
