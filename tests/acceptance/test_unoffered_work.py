"""Work that no worker can do, or that one worker may not do."""

import signal

import pytest
from api_support import start_api
from endpoints import endpoint
from support import until, utc

from scheduler.postgres.worker_rows import STALE_SECONDS


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


def runs(sidecar, job_id):
    return sidecar.sql(
        "SELECT status::text, attempt, error, worker, attempts FROM runs WHERE job_id = %s"
        " UNION ALL SELECT status::text, attempt, error, worker, attempts FROM run_history WHERE job_id = %s",
        job_id, job_id)


def ended(sidecar, job_id, status):
    def there():
        return [row for row in runs(sidecar, job_id) if row["status"] == status]
    return until(there, f"a {status} run of {job_id}")[0]


def webhook(host, url, **fields):
    return host.request(run_at=utc().isoformat(), target={"webhook": {"url": url}}, **fields)


@pytest.mark.parametrize("target", [
    {"webhook": {"url": "http://127.0.0.1:1/"}}, {"webhook": {"url": "http://127.0.0.1:1/"}, "pool": "gpu"},
    {"command": {"name": "note"}},
], ids=["webhook", "pool", "command"])
def test_work_without_a_worker_is_visible_and_becomes_dead_after_its_start_timeout(sidecar, host, target):
    problem = {"webhook": "no worker offers webhooks", "pool": "no worker of the pool gpu offers webhooks",
               "command": "no worker offers the command note"}
    expected = problem["pool" if "pool" in target else next(iter(target))]
    sidecar.up()
    api = start_api(sidecar)
    patient = host.request(run_at=utc().isoformat(), target=target)
    until(lambda: expected in str(api.get(f"/jobs/{patient}").json.get("last_problem")), "the problem of the job")
    assert [expected in str(job["last_problem"]) for job in api.get("/jobs").json["items"]] == [True]
    if expected == problem["webhook"]:  # the other events stay due, which is reported if it takes a minute
        until(lambda: api.get("/health/detailed").json["status"] == "degraded", "the health degraded")
        processes = api.get("/health/detailed").json["processes"]
        assert (processes["worker"], processes["consumer"], processes["producer"]) == (0, 1, 1)
    hasty = host.request(run_at=utc().isoformat(), target=target, run={"start_timeout": 2, "max_attempts": 3})
    run = ended(sidecar, hasty, "dead")
    assert (run["attempt"], run["error"]) == (1, expected)
    assert api.get(f"/jobs/{hasty}").json["last_run_status"] == "dead"
    _, properties, _ = host.get("scheduler_dead")
    assert expected in properties.headers["x-dead-reason"]


def test_an_attempt_that_busy_workers_do_not_start_in_time_is_tried_again(sidecar, host):
    """The worker that is alive does not take it: it is frozen, and not yet noticed."""
    sidecar.up()
    worker = sidecar.start("worker", SCHEDULER_WEBHOOK_ALLOW="127.0.0.0/8").ready()
    until(lambda: sidecar.sql("SELECT 1 FROM workers"), "the worker's row")
    sidecar.sql("UPDATE workers SET last_seen_at = now() + %s * interval '100 seconds'", STALE_SECONDS)
    worker.popen.send_signal(signal.SIGSTOP)
    job_id = webhook(host, "http://127.0.0.1:1/", run={"start_timeout": 1, "max_attempts": 2, "backoff": [0]})
    run = ended(sidecar, job_id, "dead")
    assert (run["attempt"], run["error"]) == (2, "no worker reported a start in time")


def test_a_call_that_a_worker_may_not_make_is_made_by_one_that_may(sidecar, host, server):
    sidecar.up()
    strict = sidecar.start("worker", "--only", "webhooks").ready()
    until(lambda: len(sidecar.sql("SELECT 1 FROM workers")) == 1, "the strict worker's row")
    alone = webhook(host, server.url("/alone"))
    run = ended(sidecar, alone, "dead")  # no other worker could make it
    assert (run["attempt"], "SCHEDULER_WEBHOOK_ALLOW" in run["error"]) == (1, True)
    permissive = sidecar.start("worker", "--only", "webhooks", SCHEDULER_WEBHOOK_ALLOW="127.0.0.0/8").ready()
    until(lambda: len(sidecar.sql("SELECT 1 FROM workers")) == 2, "the rows of both workers")
    jobs = []

    def refused_again():
        jobs.append(webhook(host, server.url("/ours"), run={"max_attempts": 1}))
        return strict.metric("scheduler_webhook_requests_total") >= 2

    until(refused_again, "a call given back")
    ends = [ended(sidecar, job_id, "succeeded") for job_id in jobs]
    assert {end["worker"].rpartition(":")[2] for end in ends} == {str(permissive.popen.pid)}
    outcomes = {attempt["outcome"] for end in ends for attempt in end["attempts"]}
    assert outcomes <= {"succeeded", "snoozed"}


def test_a_call_that_every_worker_refuses_is_dead_after_each_has_refused_it(sidecar, host, server):
    sidecar.up()
    for _ in range(2):
        sidecar.start("worker", "--only", "webhooks").ready()
    until(lambda: len(sidecar.sql("SELECT 1 FROM workers")) == 2, "the rows of both workers")
    run = ended(sidecar, webhook(host, server.url("/")), "dead")
    assert {attempt["worker"] for attempt in run["attempts"]} == {
        row["name"] for row in sidecar.sql("SELECT host || ':' || pid AS name FROM workers")}
    assert not server.received
