"""Bulk actions by filter, retries and results, statistics and occurrences."""

import itertools
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from api_support import BUSY
from support import DEADLINE, connected, iso, until, utc


@pytest.fixture(scope="module", autouse=True)
def producer(shared):
    shared.start("producer").ready()


def statuses(api, **query):
    return sorted(item["status"] for item in api.get("/jobs", **query).json["items"])


def test_bulk_actions_change_all_matching_jobs(api):
    for number in range(5):
        api.job(job_type="many" if number else "one")
    assert api.post("/jobs/pause", job_type="many").json == {"matched": 4}
    assert statuses(api) == ["paused"] * 4 + ["pending"]
    assert api.post("/jobs/resume", status="paused").json == {"matched": 4}
    assert statuses(api) == ["pending"] * 5
    assert api.post("/jobs/cancel", q="man").json == {"matched": 4}
    assert statuses(api) == ["cancelled"] * 4 + ["pending"]
    assert api.post("/jobs/cancel", job_type="none").json == {"matched": 0}


@pytest.mark.parametrize("path", ["/jobs/pause", "/jobs/resume", "/jobs/cancel", "/runs/retry"])
def test_a_bulk_action_without_a_filter_is_rejected(api, path):
    assert api.post(path).status == 422
    assert set(api.post(path, limit=5).errors) == {"limit"}


def test_a_bulk_action_processes_several_batches(api, shared):
    tenant = api.job(job_type="x")["tenant"]
    shared.sql("INSERT INTO jobs (id, job_type, tenant, next_run_at, starts_at) SELECT gen_random_uuid(), 'bulk', "
               "%s, '2099-01-01', '2099-01-01' FROM generate_series(1, 1203)", tenant)
    assert api.post("/jobs/pause", job_type="bulk").json == {"matched": 1203}
    found = shared.sql("SELECT status, count(*) FROM jobs WHERE tenant = %s GROUP BY status ORDER BY 1", tenant)
    assert [tuple(each.values()) for each in found] == [("pending", 1), ("paused", 1203)]
    [told] = shared.sql("SELECT count(*) FROM audit WHERE tenant = %s AND action = 'pause'", tenant)
    assert told["count"] == 1203


def test_a_tenant_can_run_two_bulk_actions_at_a_time(api, shared):
    """Others' writes need connections too."""
    job = api.job(job_type="held")
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with ThreadPoolExecutor(2) as pool, connected(shared.database_url) as connection:
        connection.autocommit = False
        connection.cursor().execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (job["id"],))
        started = [pool.submit(api.post, "/jobs/pause", job_type="held") for _ in range(2)]
        until(lambda: len(shared.sql(waiting)) == 2, "both wait for the row")
        refused = api.post("/jobs/pause", job_type="held")
        assert (refused.status, "retry-after" in refused.headers) == (429, True)
        connection.rollback()
        assert {future.result().status for future in started} <= {200, 503}  # 503: the row was locked too long
    assert api.post("/jobs/pause", job_type="held").json == {"matched": 1}


def test_a_bulk_action_stops_when_its_client_disconnects(api, shared):
    tenant = api.job(job_type="x")["tenant"]
    process = next(process for process in shared.processes if process.role == "api")
    tries = itertools.count(1)

    def ended(number):
        """Return the results of all requests so far, once this one has ended."""
        found = [line["status"] for line in list(process.lines)
                 if line.get("route") == "/api/v1/jobs/pause" and line["sub"] == f"operator of {tenant}"]
        return found if len(found) == number else None

    def paused_when_hung_up_on():
        """Return the number of paused jobs; None if the wait for the lock timed out before its release."""
        number = next(tries)
        kind = f"bulk.{number}"
        shared.sql("INSERT INTO jobs (id, job_type, tenant, next_run_at, starts_at, created_at) "
                   "SELECT gen_random_uuid(), %s, %s, '2099-01-01', '2099-01-01', now() - n * interval '1 second' "
                   "FROM generate_series(1, 1500) AS n", kind, tenant)
        hang_up_in_the_second_batch(api, shared.database_url, kind)
        if until(lambda: ended(number), "the request has ended")[-1] == BUSY:
            return None
        [found] = shared.sql("SELECT count(*) FROM jobs WHERE job_type = %s AND status = 'paused'", kind)
        return found["count"]

    assert until(paused_when_hung_up_on, "a request without a timeout") == 1000


def hang_up_in_the_second_batch(api, database_url, kind):
    parts = urlsplit(api.url)
    with (
        connected(database_url) as other, other.cursor() as cursor,
        connected(database_url) as beside, beside.cursor() as watching,
    ):
        other.autocommit = False
        cursor.execute("SELECT FROM jobs WHERE id = (SELECT id FROM jobs WHERE job_type = %s "
                       "ORDER BY created_at DESC OFFSET 700 LIMIT 1) FOR UPDATE", (kind,))
        with socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE) as client:
            client.sendall(f"POST /api/v1/jobs/pause?job_type={kind} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                           f"Authorization: Bearer {api.token}\r\n\r\n".encode())
            ours = ("SELECT pid FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock' "
                    "AND application_name = 'scheduler api writes'")

            def waits():
                """Whether it waits for us; also after it has timed out and responded."""
                watching.execute(ours)
                return watching.fetchall() or select.select([client], [], [], 0)[0]

            until(waits, "the second batch waits")
        assert api.get("/health").status == 200  # by now it has seen that the client is gone
        other.rollback()


def test_a_run_is_reported_dead_and_retried(api, served):
    job = api.job(run={"max_attempts": 1}, run_at=iso(utc()))
    run = until(lambda: api.get(f"/jobs/{job['id']}/runs").json["items"], "its run")[0]
    event = run["event_id"]
    assert (run["status"], run["attempt"], run["max_attempts"], run["origin"]) == ("delivered", 1, 1, "schedule")
    began = api.post(f"/runs/{event}/result", {"attempt": 1, "status": "running", "worker": "w", "progress": 0.5})
    assert (began.json["status"], began.json["worker"], began.json["progress"]) == ("running", "w", 0.5)
    failed = {"attempt": 1, "status": "failed", "error": "no such card", "output": {"code": 7}}
    dead = api.post(f"/runs/{event}/result", failed)
    assert (dead.json["status"], dead.json["error"], dead.json["output"]) == ("dead", "no such card", {"code": 7})
    assert [attempt["outcome"] for attempt in dead.json["attempts"]] == ["failed"]
    assert api.get(f"/jobs/{job['id']}").json["last_run_status"] == "dead"
    assert [item["event_id"] for item in api.get("/runs", status="dead").json["items"]] == [event]
    assert api.post(f"/runs/{event}/retry").json["status"] == "waiting"
    until(lambda: api.get(f"/runs/{event}").json["status"] == "delivered", "the second attempt")
    late = api.post(f"/runs/{event}/result", {"attempt": 1, "status": "failed"})
    assert late.status == 409
    api.post(f"/runs/{event}/result", {"attempt": 2, "status": "failed"})
    assert api.post("/runs/retry", status="dead").json == {"matched": 1}
    done = api.post(f"/runs/{event}/result", {"attempt": 3, "status": "succeeded", "event_id": event})
    assert done.json["status"] == "succeeded"
    until(lambda: api.get("/stats").json["runs"]["succeeded"] == 1, "it counts")
    wrong = api.post(f"/runs/{event}/result", {"attempt": 0, "status": "odd"})
    assert (wrong.status, set(wrong.errors)) == (422, {"attempt", "status"})
    entries = served.as_("admin", job["tenant"]).get("/audit", kind="run").json["items"]
    actions = [entry["action"] for entry in entries]
    assert (actions.count("retry"), actions.count("result")) == (2, 4)


def test_statistics_have_the_contracts_shape(api, served):
    api.job()
    body = api.get("/stats").json
    assert body == {
        "jobs": {"pending": 1, "paused": 0, "done": 0, "cancelled": 0},
        "runs": dict.fromkeys(["delivered", "running", "waiting", "emitted", "succeeded", "dead", "cancelled"], 0),
        "success_rate": None, "mean_duration_ms": None, "lag_ms": {"p50": None, "p99": None}, "backlog": 0,
        "oldest_due_seconds": 0,
    }
    due = api.job(run_at=iso(utc()))
    until(lambda: api.get("/stats").json["lag_ms"]["p99"] is not None, "its lag")
    assert api.get(f"/jobs/{due['id']}").json["last_due_at"] is not None

    def roles():
        return {item["role"]: item["status"] for item in served.get("/replicas").json["items"]}

    until(lambda: roles() == {"api": "alive", "producer": "alive"}, "a heartbeat of both")


def test_occurrences_have_local_times_and_dst_notes(api):
    fields = {"rrule": "FREQ=DAILY", "run_at": "2099-03-07T02:30:00", "timezone": "America/New_York"}
    job = api.job(**fields)
    body = api.get(f"/jobs/{job['id']}/occurrences", count=3).json
    assert body["next"] is None
    assert [item["utc"] for item in body["items"]] == [
        "2099-03-07T07:30:00Z", "2099-03-08T07:30:00Z", "2099-03-09T06:30:00Z"
    ]
    assert body["items"][1]["local"] == "2099-03-08T03:30:00-04:00"
    assert "does not exist" in body["items"][1]["note"]
    april = {"from": "2099-04-01T00:00:00Z", "to": "2099-04-03T00:00:00Z"}
    span = api.get(f"/jobs/{job['id']}/occurrences", **april)
    assert len(span.json["items"]) == 2
    assert api.post("/preview", fields | {"count": 3}).json == body
    wrong = api.post("/preview", {"cron": "0 0 30 2 *"})
    assert (wrong.status, set(wrong.errors)) == (422, {"cron"})
    assert api.get(f"/jobs/{job['id']}/occurrences", count=1001).status == 422
    assert api.post("/preview", b"[1]").status == 422
