"""A database session that keeps a row or a table locked delays what needs it, and nothing else."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from uuid import uuid4

import psycopg2
import pytest
from api_support import start_api
from support import iso, until, utc

FAR = "2099-01-01T00:00:00Z"


@contextmanager
def locked(sidecar, statement, *values):
    """Hold rows locked, as a psql session that was left open does."""
    with closing(psycopg2.connect(sidecar.database_url)) as session, session.cursor() as cursor:
        cursor.execute(statement, values)
        assert cursor.rowcount
        yield session
        session.rollback()


def locked_job(sidecar, job_id):
    return locked(sidecar, "SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", job_id)


def locked_run(sidecar, event):
    until(lambda: sidecar.sql("SELECT 1 FROM runs WHERE event_id = %s", event["event_id"]), "the run is stored")
    return locked(sidecar, "SELECT 1 FROM runs WHERE event_id = %s FOR UPDATE", event["event_id"])


class Replies:
    """A queue for replies to commands."""

    def __init__(self, host):
        self.host, self.queue = host, host.channel.queue_declare("", exclusive=True).method.queue

    def send(self, key, body, **properties):
        self.host.publish(key, body, reply_to=self.queue, correlation_id=key, **properties)

    def take(self, count=1):
        """Return the next replies as (correlation_id, status)."""
        got = [self.host.get(self.queue) for _ in range(count)]
        return [(properties.correlation_id, json.loads(body)["status"]) for _, properties, body in got]

    def none(self):
        return self.host.channel.queue_declare(self.queue, passive=True).method.message_count == 0


@pytest.fixture
def replies(host):
    return Replies(host)


def acknowledged(host, sidecar, name):
    """Wait until the consumer holds no message from a queue and the queue is empty."""
    sidecar.close()
    sidecar.processes.clear()
    assert host.drain(name) == []


def tracked_events(host, count):
    for _ in range(count):
        host.request(run_at=iso(utc()), run={"delay": 0, "max_attempts": 3})
    return host.due(count)


def result(event, status="succeeded"):
    return {"event_id": event["event_id"], "attempt": event["run"]["attempt"], "worker": "w", "status": status}


def test_commands_for_other_jobs_are_stored_while_one_job_is_locked(host, sidecar, replies):
    sidecar.up(producers=0)
    job, other = host.request(run_at=FAR), host.request(run_at=FAR)
    sidecar.stored(job)
    sidecar.stored(other)
    with locked_job(sidecar, job):
        replies.send("pause", {"id": job})  # without issued_at: their order is all there is
        replies.send("resume", {"id": job})
        replies.send("trigger", {"id": job})
        replies.send("cancel", {"id": other})
        replies.send("request", {"id": str(uuid4()), "job_type": "test.job", "run_at": FAR})
        assert replies.take(2) == [("cancel", "cancelled"), ("request", "scheduled")]
        # The next ones don't wait either, and a later one for the locked job doesn't overtake.
        replies.send("pause", {"id": job})
        replies.send("request", {"id": other, "job_type": "test.job", "run_at": FAR})
        assert replies.take() == [("request", "scheduled")]
        assert replies.none()
    assert replies.take(4) == [(key, "scheduled") for key in ("pause", "resume", "trigger", "pause")]
    assert sidecar.job(job)["status"] == "paused"
    acknowledged(host, sidecar, "scheduler_inbox")


def test_many_commands_for_a_locked_job_leave_room_for_others(host, sidecar, replies):
    sidecar.up(producers=0, SCHEDULER_PREFETCH="20")
    job = host.request(run_at=FAR)
    sidecar.stored(job)
    with locked_job(sidecar, job):
        for _ in range(10):
            for _ in range(30):
                host.publish("request", {"id": job, "job_type": "test.job", "run_at": FAR, "payload": {"more": 1}})
            replies.send("request", {"id": str(uuid4()), "job_type": "test.job", "run_at": FAR})
            assert replies.take() == [("request", "scheduled")]
        replies.send("cancel", {"id": job})
    assert replies.take() == [("cancel", "cancelled")]
    acknowledged(host, sidecar, "scheduler_inbox")


def test_a_consumer_that_starts_behind_a_locked_job_stores_the_others(host, sidecar, replies):
    consumer = sidecar.start("consumer").ready()
    job = host.request(run_at=FAR)
    sidecar.stored(job)
    consumer.stop()
    with locked_job(sidecar, job):
        for _ in range(20):
            host.publish("pause", {"id": job})
        replies.send("cancel", {"id": job})
        others = [host.request(run_at=FAR) for _ in range(100)]
        consumer = sidecar.start("consumer").ready()
        for other in others:
            sidecar.stored(other)
        assert consumer.logged("messages set aside: another session has locked their rows")["id"] == job
        # Those set aside go back when it stops, and another consumer takes them.
        consumer.stop()
        sidecar.start("consumer").ready()
    assert replies.take() == [("cancel", "cancelled")]
    acknowledged(host, sidecar, "scheduler_inbox")


@pytest.fixture
def impatient(stack):
    """RabbitMQ closes a channel that has not acknowledged a delivery for four seconds."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    node, settings = stack.rabbitmq, {"consumer_timeout": 4_000, "channel_tick_interval": 200}
    before = {name: node.evaluate(f"element(2, application:get_env(rabbit, {name}))") for name in settings}
    for name, value in settings.items():
        node.evaluate(f"application:set_env(rabbit, {name}, {value})")
    yield
    for name, value in before.items():
        node.evaluate(f"application:set_env(rabbit, {name}, {value})")


@pytest.mark.usefixtures("impatient")
def test_a_locked_job_does_not_repeatedly_close_the_channel(host, sidecar, replies):
    """The broker names its consumer timeout when it closes a channel; from then on the consumer is earlier."""
    consumer = sidecar.start("consumer", LOG_LEVEL="debug").ready()
    job = host.request(run_at=FAR)
    sidecar.stored(job)

    def lines(text):
        return [line for line in consumer.lines if text in str(line)]

    with locked_job(sidecar, job):
        replies.send("pause", {"id": job})
        until(lambda: lines("delivery acknowledgement on channel"), "the first consumer timeout")
        for key in ("resume", "trigger", "pause"):
            replies.send(key, {"id": job})
        until(lambda: len(lines("messages returned to the queue")) > 2 or len(lines("unavailable")) > 1, "returns")
        assert len(lines("RabbitMQ unavailable: reconnecting")) == 1
        replies.send("request", {"id": str(uuid4()), "job_type": "test.job", "run_at": FAR})
        assert replies.take() == [("request", "scheduled")]
        assert replies.none()
    assert replies.take(4) == [(key, "scheduled") for key in ("pause", "resume", "trigger", "pause")]
    acknowledged(host, sidecar, "scheduler_inbox")


def test_only_the_cancel_of_a_locked_run_waits(host, sidecar, replies):
    sidecar.up()
    [event, other] = tracked_events(host, 2)
    with locked_run(sidecar, event):
        replies.send("cancel", {"id": event["job_id"]})
        replies.send("cancel", {"id": other["job_id"]})
        replies.send("pause", {"id": str(uuid4())})
        assert [key for key, _ in replies.take(2)] == ["cancel", "pause"]
        assert replies.none()
    assert replies.take() == [("cancel", "cancelled")]


def test_only_the_cancel_of_a_locked_delayed_message_waits(host, sidecar, replies):
    sidecar.up()
    message_id = str(uuid4())
    host.publish("anywhere", b"x", "schedule.delay", message_id=message_id, headers={"x-delay": 3_600_000})
    until(lambda: sidecar.sql("SELECT 1 FROM delayed_messages WHERE message_id = %s", message_id), "it waits")
    with locked(sidecar, "SELECT 1 FROM delayed_messages WHERE message_id = %s FOR UPDATE", message_id):
        replies.send("cancel", {"id": message_id})
        replies.send("pause", {"id": str(uuid4())})
        assert [key for key, _ in replies.take()] == ["pause"]
        assert replies.none()
    assert replies.take() == [("cancel", "cancelled")]


def test_only_the_request_for_a_job_being_inserted_waits(sidecar, replies):
    """Its row cannot be seen yet, nor found by its lock."""
    sidecar.up(producers=0)
    job = str(uuid4())
    request = {"job_type": "test.job", "run_at": FAR}
    insert = "INSERT INTO jobs (id, job_type, next_run_at, starts_at) VALUES (%s, 'x', '2099-01-01', '2099-01-01')"
    with locked(sidecar, insert, job):
        replies.send("pause", {"id": str(uuid4())})
        replies.send("request", {"id": job} | request)
        for _ in range(5):
            replies.send("request", {"id": str(uuid4())} | request)
        assert {key for key, _ in replies.take(6)} == {"pause", "request"}
        assert replies.none()
    assert replies.take() == [("request", "scheduled")]


def test_results_of_other_runs_are_recorded_while_one_run_is_locked(host, sidecar, replies):
    sidecar.up()
    [event, *others] = tracked_events(host, 4)
    with locked_run(sidecar, event):
        replies.send("result", result(event, "running"))
        replies.send("result", result(event))
        for other in others:
            replies.send("result", result(other))
        assert replies.take(3) == [("result", "recorded")] * 3
        assert replies.none()
    assert replies.take(2) == [("result", "recorded")] * 2
    until(lambda: len(sidecar.sql("SELECT 1 FROM run_history WHERE status = 'succeeded'")) == 4, "all have ended")
    acknowledged(host, sidecar, "scheduler_results")


def test_an_attempt_is_not_lost_while_its_result_is_set_aside(host, sidecar, replies):
    sidecar.up()
    [event] = tracked_events(host, 1)
    replies.send("result", result(event, "running") | {"heartbeat": 3600})
    replies.take()
    expire = "UPDATE runs SET (alive_until, wake_at) = (now(), now()) WHERE event_id = %s"
    with locked(sidecar, expire, event["event_id"]) as session:
        replies.send("result", result(event))
        sidecar.processes[0].logged("messages set aside: another session has locked their rows")
        session.commit()  # now a producer may look at it, too
    assert replies.take() == [("result", "recorded")]
    [row] = until(lambda: sidecar.sql("SELECT attempts FROM run_history WHERE event_id = %s", event["event_id"]),
                  "the run in the history")
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["succeeded"]


def test_the_api_answers_503_for_a_locked_job_and_serves_others(sidecar):
    api = start_api(sidecar)
    job, other = api.job(), api.job()
    once = replace(api, patient=False)

    def refused(path, problem, **query):
        response = once.post(path, **query)
        refused = (response.status, response.headers["Retry-After"]) == (503, "2")
        return refused and problem in response.json["detail"]

    with locked_job(sidecar, job["id"]):
        until(lambda: refused(f"/jobs/{job['id']}/pause", "another database session has locked"), "it is so")
        assert api.post(f"/jobs/{other['id']}/pause").json["status"] == "paused"
        until(lambda: refused("/jobs/cancel", "1 of 2 matches", job_type="test"), "it is so")
        assert api.get(f"/jobs/{other['id']}").json["status"] == "cancelled"
    assert api.post(f"/jobs/{job['id']}/pause").json["status"] == "paused"


def waits(sidecar):
    """Return when the transactions of the API began that wait for a lock."""
    return sidecar.sql("SELECT xact_start FROM pg_stat_activity WHERE datname = current_database() "
                       "AND application_name LIKE '%api writes%' AND wait_event_type = 'Lock'")


def test_a_write_waits_longer_than_one_lock_timeout(sidecar):
    api = start_api(sidecar)
    job = api.job()
    with ThreadPoolExecutor(1) as pool:
        with locked_job(sidecar, job["id"]):
            paused = pool.submit(replace(api, patient=False).post, f"/jobs/{job['id']}/pause")
            first = until(lambda: waits(sidecar), "it waits")
            until(lambda: waits(sidecar) != first, "its first attempt has failed")
        assert (paused.result().status, paused.result().json["status"]) == (200, "paused")


def test_an_import_retries_the_lines_of_locked_jobs(sidecar):
    api = start_api(sidecar)
    job = api.job()
    ids = job["id"], str(uuid4())
    lines = [{"id": job_id, "job_type": "test", "run_at": iso(utc(days=1))} for job_id in ids]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    with ThreadPoolExecutor(1) as pool:
        with locked_job(sidecar, job["id"]):
            imported = pool.submit(api.ask, "POST", "/jobs/import", body, {"Content-Type": "application/x-ndjson"})
            until(lambda: api.get(f"/jobs/{ids[1]}").status == 200, "the other line is stored")
        answers = [json.loads(line) for line in imported.result().body.splitlines()]
    assert [answer.get("status") for answer in answers] == ["scheduled", "scheduled"]


@contextmanager
def locked_table(sidecar, name):
    """Hold a lock against writers of a table, as CREATE INDEX does."""
    with closing(psycopg2.connect(sidecar.database_url)) as session, session.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {name} IN SHARE MODE")
        yield session.get_backend_pid()
        session.rollback()


EMITS_NOTHING = "nothing is emitted: another session has locked a table"


def test_no_event_is_published_while_a_table_lock_prevents_settling_it(host, sidecar):
    consumer = sidecar.start("consumer").ready()
    jobs = {host.request(run_at=iso(utc())) for _ in range(20)}
    for job in jobs:
        sidecar.stored(job)
    host.publish("later", b"x", "schedule.delay", headers={"x-delay": 1})
    out = host.listen("schedule.delayed", "later")
    until(lambda: sidecar.sql("SELECT 1 FROM delayed_messages"), "the delayed message is stored")
    consumer.stop()
    with locked_table(sidecar, "jobs") as pid:
        producer = sidecar.start("producer").ready()
        assert pid in producer.logged(EMITS_NOTHING)["pids"]
        host.get(out)  # what needs another table is emitted
        assert host.drain("mainapp_due") == []
    assert {event["job_id"] for event in host.due(20)} == jobs
    assert not sidecar.close()[-1]
    assert host.drain("mainapp_due") == []


def test_no_delayed_message_is_published_while_a_table_lock_prevents_settling_it(host, sidecar):
    sidecar.start("consumer").ready()
    out = host.listen("schedule.delayed", "later")
    host.publish("later", b"x", "schedule.delay", headers={"x-delay": 1})
    until(lambda: sidecar.sql("SELECT 1 FROM delayed_messages"), "it is stored")
    with locked_table(sidecar, "delayed_messages") as pid:
        producer = sidecar.start("producer").ready()
        assert pid in producer.logged(EMITS_NOTHING)["pids"]
        host.request(run_at=iso(utc()))
        host.due()
        assert host.drain(out) == []
    host.get(out)


def test_no_attempt_is_published_while_a_table_lock_prevents_settling_it(host, sidecar, replies):
    sidecar.up()
    [event] = tracked_events(host, 1)
    with locked_table(sidecar, "run_history") as pid:
        replies.send("result", result(event))
        assert replies.take() == [("result", "recorded")]
        finished = host.listen("schedule.events", "finished")
        assert pid in sidecar.processes[1].logged(EMITS_NOTHING)["pids"]
        assert host.drain(finished) == []
        host.request(run_at=iso(utc()))
        host.due()
    host.get(finished)


def test_a_cancel_of_a_job_does_not_wait_for_the_table_of_delayed_messages(host, sidecar, replies):
    sidecar.up()
    job = host.request(run_at=FAR)
    sidecar.stored(job)
    with locked_table(sidecar, "delayed_messages"):
        replies.send("cancel", {"id": job})
        assert replies.take() == [("cancel", "cancelled")]
