"""Messages that are delivered again: triggers emit once, and what ends each consumer is dead-lettered."""

import json
import signal
from contextlib import closing
from uuid import uuid4

import psycopg2
import pytest
from support import Host, Sidecar, iso, patiently, until, utc

from scheduler.domain.instants import rfc3339
from scheduler.rabbit import topology

FAR = "2099-01-01T00:00:00Z"


def ask(host, key, body, **properties):
    queue = host.channel.queue_declare("", exclusive=True).method.queue
    host.publish(key, body, reply_to=queue, **properties)
    return json.loads(host.get(queue)[2])


def test_a_trigger_without_issued_at_is_recognised_by_its_message_id(host, sidecar):
    sidecar.up()
    job, other = host.request(run_at=FAR), host.request(run_at=FAR)
    until(lambda: sidecar.job(other), "both jobs to be stored")
    assert ask(host, "trigger", {"id": job}, message_id="ünique")["status"] == "scheduled"
    assert host.due()[0]["job_id"] == job
    for _ in range(2):
        assert ask(host, "trigger", {"id": job}, message_id="ünique")["status"] == "unchanged"
    assert ask(host, "trigger", {"id": other}, message_id="ünique")["status"] == "scheduled"
    for properties in ({"message_id": "another"}, {}, {}):
        assert ask(host, "trigger", {"id": job}, **properties)["status"] == "scheduled"
    assert sorted(event["job_id"] for event in host.due(4)) == sorted([other, job, job, job])
    assert host.drain("mainapp_due") == []


def test_triggers_that_arrive_in_reversed_order_are_each_emitted_once(host, sidecar):
    sidecar.up()
    requested, first, second = (rfc3339(utc(seconds=ago)) for ago in (-30, -20, -10))
    job = host.request(run_at=FAR, issued_at=requested)
    sidecar.stored(job)
    for issued_at in (second, first):
        assert ask(host, "trigger", {"id": job, "issued_at": issued_at})["status"] == "scheduled"
        [event] = host.due()
        assert event["due_at"] == issued_at
        until(lambda: not sidecar.job(job)["triggers"], "the trigger is settled")
    for issued_at in (first, second, first):
        assert ask(host, "trigger", {"id": job, "issued_at": issued_at})["status"] == "unchanged"
    assert sidecar.job(job)["triggers"] == []
    assert rfc3339(sidecar.job(job)["triggered_at"]) == second
    assert host.drain("mainapp_due") == []


def test_a_rejected_trigger_can_be_resent_with_its_message_id(host, sidecar):
    sidecar.up(producers=0)
    job = host.request(run_at=FAR, tenant="acme")
    sidecar.stored(job)
    assert "errors" in ask(host, "trigger", {"id": job}, message_id="m")
    assert ask(host, "trigger", {"id": job, "tenant": "acme"}, message_id="m")["status"] == "scheduled"


def test_a_redelivered_trigger_emits_once(host, sidecar):
    """The consumer is killed after the commit and before the acknowledgement."""
    job = host.request(run_at=FAR)
    consumer = sidecar.start("consumer").ready()
    sidecar.stored(job)
    sidecar.sql("CREATE FUNCTION wait_a_minute() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_advisory_lock_shared(7); RETURN NULL; END'")
    sidecar.sql("CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON trigger_messages "
                "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_a_minute()")
    with closing(psycopg2.connect(sidecar.database_url)) as holder:
        holder.cursor().execute("SELECT pg_advisory_lock(7)")
        host.publish("trigger", {"id": job}, message_id="m")
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"
        until(lambda: sidecar.sql(waiting), "the commit to begin")
        consumer.kill()  # its session goes on to commit
    sidecar.up()
    assert host.due()[0]["job_id"] == job
    marker = host.request(run_at=iso(utc()))
    assert host.due()[0]["job_id"] == marker
    until(lambda: sidecar.job(job)["occurrence"] == 1, "the trigger is settled")
    assert host.drain("mainapp_due") == []


@pytest.fixture
def classic(vhost, database_url):
    """A sidecar and a host on classic queues."""
    patiently(lambda: topology.declare(vhost, queue_type="classic", due_queue_type="default"))
    sidecar, host = Sidecar(database_url, vhost), Host(vhost)
    sidecar.env["SCHEDULER_QUEUE_TYPE"] = "classic"
    yield sidecar, host
    host.close()
    sidecar.close()


def test_a_classic_queue_dead_letters_a_crashing_command(classic):
    """Consumers are killed while they handle one message; the publisher's own delivery count is ignored."""
    sidecar, host = classic
    poison, good = str(uuid4()), str(uuid4())
    sidecar.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (%s, 't', %s)", poison, FAR)
    with closing(psycopg2.connect(sidecar.database_url)) as holder:
        holder.cursor().execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (poison,))
        host.publish("cancel", {"id": poison}, headers={"x-delivery-count": 0})
        host.request(id=good, run_at=FAR)
        waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        for deliveries in range(3):
            consumer = sidecar.start("consumer")
            until(lambda: sidecar.sql(f"SELECT pid {waiting}"), "the consumer to handle it")
            counts = [row["count"] for row in sidecar.sql("SELECT count FROM redeliveries")]
            assert counts == ([deliveries] if deliveries else [])
            consumer.popen.send_signal(signal.SIGKILL)
            consumer.ended()
            sidecar.sql(f"SELECT pg_terminate_backend(pid) {waiting}")
        sidecar.sql("UPDATE redeliveries SET count = 18")
        sidecar.start("consumer").ready()
        sidecar.stored(good)
        _, properties, body = host.get("scheduler_dead")
    assert json.loads(body)["id"] == poison
    assert "delivered 20 times" in properties.headers["x-rejected-reason"]
    until(lambda: not sidecar.sql("SELECT 1 FROM redeliveries"), "the count to be forgotten")


def test_requeued_messages_of_a_classic_queue_are_stored(classic):
    sidecar, host = classic
    jobs = [host.request(run_at=FAR) for _ in range(30)] + [host.request(run_at=FAR, job_type="again")]
    for _ in range(30):
        host.publish("trigger", {"id": jobs[-1]})  # the same bytes each time
    for _ in range(25):
        tags = [host.channel.basic_get("scheduler_inbox")[0].delivery_tag for _ in range(61)]
        host.channel.basic_nack(tags[-1], multiple=True, requeue=True)
    sidecar.up(producers=0)
    until(lambda: sidecar.sql("SELECT count(*) AS n FROM jobs")[0]["n"] == len(jobs), "every command stored")
    until(lambda: len(sidecar.job(jobs[-1])["triggers"]) == 30, "every trigger stored")
    until(lambda: not sidecar.sql("SELECT 1 FROM redeliveries"), "the counts to be forgotten")
    assert host.drain("scheduler_dead") == []
