"""A dump under load, a disaster, and the events of the restored database."""

import json
import shutil
import subprocess
import threading
from collections import defaultdict

import pytest
from support import Host, Sidecar, connected, iso, until, utc

from scheduler.dev.servers.binaries import find_postgres


class Load(threading.Thread):
    """A host that asks for reminders until it is told to stop: due now, due soon, and due much later."""

    def __init__(self, amqp_url):
        super().__init__(daemon=True)
        self._url = amqp_url
        self._stop_asking = threading.Event()
        self.asked = 0

    def run(self):
        host = Host(self._url)
        while not self._stop_asking.wait(0.005):
            ahead = (0, 1, 3, 3600)[self.asked % 4]
            host.request(job_type="backup.once", run_at=iso(utc(seconds=ahead)), payload={"n": self.asked})
            self.asked += 1
        host.close()

    def stop(self):
        self._stop_asking.set()
        self.join()


def tool(name):
    """Return one of Postgres's programs, from the server's folder if it is not on the path."""
    folder = find_postgres()
    beside = folder / name if folder else None
    return str(beside) if beside and beside.exists() else shutil.which(name) or pytest.fail(f"{name} is not here")


def rows(url, statement):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def received(host):
    """Take all events and return them by job."""
    found = defaultdict(list)
    for body in host.drain("mainapp_due"):
        event = json.loads(body)
        found[event["job_id"]].append((event["due_at"], event["event_id"]))
    return found


DUE = "SELECT id::text FROM jobs WHERE job_type = 'backup.once' AND status = 'pending' AND next_run_at < now()"


def test_a_restored_database_repeats_events_with_the_same_ids(
    sidecar, host, amqp_url, empty_database, tmp_path
):
    url = sidecar.up(consumers=1, producers=1).database_url
    ticking = host.request(job_type="backup.tick", every=1, run_at=iso(utc()), on_missed="all")
    load = Load(amqp_url)
    load.start()
    try:
        done = "SELECT count(*) > 50 FROM jobs WHERE status = 'done'"
        until(lambda: rows(url, done) == [(True,)], "emitted events")
        # Jobs being stored now may not be in the dump; they are dated by the start of their transaction.
        [(began,)] = rows(url, "SELECT least(clock_timestamp(), min(xact_start)) FROM pg_stat_activity "
                               "WHERE datname = current_database()")
        dump = tmp_path / "scheduler.dump"
        subprocess.run([tool("pg_dump"), "--format=custom", f"--file={dump}", url], check=True)
        asked = load.asked
        until(lambda: load.asked > asked + 100, "commands came after the dump")
    finally:
        load.stop()
    count = "SELECT count(*) FROM jobs WHERE job_type = 'backup.once'"
    until(lambda: rows(url, count) == [(load.asked,)], "all are stored")
    soon = DUE.replace("now()", "now() + interval '1 minute'")
    until(lambda: not rows(url, soon), "all due jobs emitted")
    # The disaster.
    sidecar.close()
    stored = dict(rows(url, "SELECT id::text, created_at FROM jobs"))
    before = received(host)

    restore = [tool("pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={empty_database}", dump]
    subprocess.run(restore, check=True)
    lost = stored.keys() - {job for (job,) in rows(empty_database, "SELECT id::text FROM jobs")}
    assert lost, "commands came after the dump"
    assert all(stored[job] >= began for job in lost)
    due = {job for (job,) in rows(empty_database, DUE)}
    assert due, "some had been pending when the dump was taken, and were emitted since"

    serve_again(Sidecar(empty_database, amqp_url), host, min(lost))
    again = received(host)
    assert again.keys() == due | {ticking}, "the jobs due in the dump, and no finished ones"
    for job in due:
        assert set(again[job]) == set(before[job]), "the same event, by its id"
    first, second = dict(before[ticking]), dict(again[ticking])
    repeated = first.keys() & second.keys()
    assert repeated, "it was due between the dump and the disaster"
    assert all(first[at] == second[at] for at in repeated)


def serve_again(sidecar, host, lost):
    """Use the restored database until its due jobs are emitted and a lost request is stored again."""
    try:
        assert sidecar.start("migrate").ended() == 0
        sidecar.up(consumers=1, producers=1)
        until(lambda: not rows(sidecar.database_url, DUE), "due jobs emitted again")
        host.request(id=lost, job_type="backup.again", run_at=iso(utc(seconds=3600)))  # as an outbox would
        sidecar.stored(lost)
    finally:
        assert set(sidecar.close()) == {0}
