"""DATABASE_READ_URL: the API reads from a streaming replica that is current and has the caller's own writes."""

from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import pytest
from api_support import start_api
from support import Sidecar, patiently, until

from chaos.breaking_clusters import primary_and_standby
from scheduler.dev.servers import databases
from scheduler.postgres.migrate import migrate


class Servers:
    """A primary with the sidecar's database, and its standby."""

    def __init__(self, primary, standby):
        self.primary, self.standby = primary, standby
        self.url = databases.create(primary.url, "scheduler", None)
        patiently(lambda: migrate(self.url))
        parts = urlsplit(standby.url)
        self.read_url = urlunsplit(parts._replace(path="/scheduler"))

    def on_standby(self, statement):
        with closing(psycopg2.connect(self.standby.url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            cursor.execute(statement)
            return cursor.fetchall()


@pytest.fixture(scope="module")
def servers(stack):
    if stack.postgres is None:
        pytest.skip("needs Postgres's programs")
    with primary_and_standby(stack, synchronous=False) as (primary, standby):
        yield Servers(primary, standby)


@pytest.fixture
def sidecar(servers):
    """The API alone, which works without a broker."""
    made = Sidecar(servers.url, "amqp://127.0.0.1:9")
    yield made
    assert all(code == 0 for code in made.close())


@pytest.fixture
def paused(servers):
    """A function that stops the standby from replaying until the end of the test."""
    def pause():
        servers.on_standby("SELECT pg_wal_replay_pause()")
        until(lambda: servers.on_standby("SELECT pg_get_wal_replay_pause_state()") == [("paused",)], "the pause")

    yield pause
    servers.standby.start()
    servers.on_standby("SELECT pg_wal_replay_resume()")


def replica(api):
    return replace(api, patient=False).get("/health/detailed").json["servers"]["postgres_read"]


def start(sidecar, servers, **env):
    api = start_api(sidecar, DATABASE_READ_URL=servers.read_url, **env)
    until(lambda: replica(api)["status"] == "ok", "the replica to be in use")
    return api


def status(api, job):
    return api.get(f"/jobs/{job['id']}").status


def test_reads_use_the_replica_except_those_of_people_who_have_just_written(sidecar, servers, paused):
    writer = start(sidecar, servers, DATABASE_READ_MAX_LAG="3600")
    reader = writer.as_("viewer", sub="another person")
    paused()
    job = writer.job(name="first")
    assert status(writer, job) == 200
    assert status(reader, job) == 404  # as on the replica
    writer.post(f"/jobs/{job['id']}/pause")
    assert writer.get(f"/jobs/{job['id']}").json["status"] == "paused"
    assert [each["status"] for each in writer.get("/jobs", q=job["id"]).json["items"]] == ["paused"]
    assert reader.get("/jobs", q=job["id"]).json["items"] == []
    servers.on_standby("SELECT pg_wal_replay_resume()")
    until(lambda: status(reader, job) == 200, "the replica to have the job")
    used = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'scheduler api replica searches'"
    assert servers.on_standby(used) != [(0,)]


def test_a_replica_that_lags_is_not_used_until_it_has_caught_up(sidecar, servers, paused):
    writer = start(sidecar, servers, DATABASE_READ_MAX_LAG="1")
    reader = writer.as_("viewer", sub="another person")
    paused()
    job = writer.job()
    state = until(lambda: (found := replica(writer))["status"] != "ok" and found, "the lag to be noticed")
    assert state["lag_seconds"] > 1
    assert "more than 1 seconds behind" in state["problem"]
    assert status(reader, job) == 200
    assert "Reads use the primary" in writer.page("/processes")
    servers.on_standby("SELECT pg_wal_replay_resume()")
    ok = {"status": "ok", "problem": None, "lag_seconds": 0}
    until(lambda: replica(writer) == ok, "the replica to catch up")
    assert "0.0 s behind the primary" in writer.page("/processes")


@pytest.mark.usefixtures("paused")  # which starts the replica again
def test_without_its_replica_the_api_reads_from_the_primary(sidecar, servers):
    writer = start(sidecar, servers)
    reader = replace(writer.as_("viewer", sub="another person"), patient=False)
    job = writer.job()
    servers.standby.kill()
    assert status(reader, job) == 200
    assert reader.get("/jobs").status == 200
    until(lambda: replica(writer)["status"] == "unavailable", "the loss to be noticed")
    servers.standby.start()
    until(lambda: replica(writer)["status"] == "ok", "the replica to be used again")
