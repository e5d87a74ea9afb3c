"""Whose queues replies go to, and whose routes a tenant uses: both bounded by a setting."""

from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from api_support import start_api
from support import Host, until

LATER = "2099-01-01T00:00:00Z"
DIRECT = "amq.rabbitmq.reply-to"


def asked(host: Host, queue: str, **fields: object) -> str:
    job = str(uuid4())
    host.publish("request", {"id": job, "job_type": "a", "run_at": LATER} | fields, reply_to=queue,
                 correlation_id=job)
    return job


@pytest.fixture
def queues(host):
    names = [f"{name}.{uuid4()}" for name in ("shop.replies", "payroll")]
    for name in names:
        host.channel.queue_declare(name, exclusive=True)
    return names


def test_replies_go_to_queues_that_are_allowed(sidecar, host, queues):
    ours, theirs = queues
    consumer = sidecar.start("consumer", SCHEDULER_REPLY_QUEUES="shop.*, other")
    consumer.ready()
    refused = [asked(host, theirs), asked(host, theirs, tenant="not a tenant")]
    accepted = asked(host, ours)
    assert host.get(ours)[1].correlation_id == accepted
    # All were answered in the order of their delivery: what was withheld would be there by now.
    assert host.drain(theirs) == []
    sidecar.stored(refused[0])
    line = consumer.logged("reply not sent: its queue is not allowed")
    assert line["queue"] == theirs
    assert "SCHEDULER_REPLY_QUEUES" in line["do"]


def test_direct_replies_are_always_allowed(sidecar, host):
    sidecar.start("consumer", SCHEDULER_REPLY_QUEUES="shop.*").ready()
    replies = []
    host.channel.basic_consume(DIRECT, lambda *came: replies.append(came[2].correlation_id), auto_ack=True)
    job = asked(host, DIRECT)
    until(lambda: host.connection.process_data_events(0.1) or replies, "the reply")
    assert replies == [job]


def test_without_the_setting_any_queue_gets_its_reply(sidecar, host, queues):
    sidecar.start("consumer").ready()
    for queue in queues:
        job = asked(host, queue)
        assert host.get(queue)[1].correlation_id == job


ROUTES = [
    ("acme", "acme", True), ("acme", "acme.mails", True), ("acme", "acmex", False), ("acme", "other.mails", False),
    ("acme", "ACME", False), ("default", "anything", True), ("acme.eu", "acme.eu.mails", True),
    ("acme.eu", "acme", False), ("acme", None, True), ("acme", "acme" + 9 * ".a", True),
    ("acme", "acme" + 10 * ".a", False), ("default", "a" + 90 * ".a", True),
]


def test_a_tenant_uses_routes_under_its_own_name(sidecar, host):
    sidecar.start("consumer", SCHEDULER_TENANT_ROUTES="prefix").ready()
    api = start_api(sidecar, SCHEDULER_TENANT_ROUTES="prefix")
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    for tenant, route, good in ROUTES:
        fields = {"tenant": tenant} | ({} if route is None else {"route": route})
        asked(host, replies, **fields)
        _, properties, body = host.get(replies)
        assert properties.type == ("ScheduleAccepted" if good else "ScheduleRejected"), (tenant, route)
        assert good or (b'"field":"route"' in body and b"SCHEDULER_TENANT_ROUTES" in body)
        answer = api.as_("operator", tenant).post("/jobs", {"job_type": "a", "run_at": LATER} | fields)
        assert (answer.status, set(answer.errors)) == ((201, set()) if good else (422, {"route"})), (tenant, route)


def test_without_the_setting_any_tenant_uses_any_route(sidecar):
    api = start_api(sidecar)
    for tenant, route, _ in ROUTES:
        assert api.as_("operator", tenant).post(
            "/jobs", {"job_type": "a", "run_at": LATER, "route": route or "a"}).status == 201


def test_replies_to_untrusted_users_go_to_their_own_queues(sidecar, host, amqp_url):
    """The consumer verifies the user; a tenant cannot make the sidecar write to another tenant's queue."""
    user = urlsplit(amqp_url).username
    own, other = f"{user}:replies", "globex:due"
    for name in (own, other):
        host.channel.queue_declare(name)
    named_by_broker = host.channel.queue_declare("", exclusive=True).method.queue
    sidecar.start("consumer", SCHEDULER_TENANT_BY="user_id", SCHEDULER_TENANT_ROUTES="prefix").ready()
    request = {"job_type": "a", "run_at": LATER}
    for queue in (other, "mainapp_due", own, named_by_broker):
        host.publish("request", request | {"id": str(uuid4())}, reply_to=queue, user_id=user)
    host.publish("request", request | {"id": str(uuid4())}, reply_to=other)  # rejected: it has no user_id
    host.publish("request", request | {"id": str(uuid4())}, reply_to=own, user_id=user)
    for queue in (own, named_by_broker, own):
        assert b"scheduled" in host.get(queue)[2]
    assert host.drain(other) == host.drain("mainapp_due") == []


def test_worker_reports_are_accepted_only_from_worker_users(sidecar, host, amqp_url):
    sidecar.start("consumer", SCHEDULER_TENANT_BY="user_id", AMQP_URL=amqp_url).ready()
    liveness = {"host": "h", "pid": 1, "version": "0.3", "started_at": "2026-01-01T00:00:00Z",
                "offers": ["webhooks"], "in_flight": 0, "beat": 1}
    forged, real = str(uuid4()), str(uuid4())
    host.publish("worker", liveness | {"id": forged})  # without the user that the broker verifies
    host.publish("worker", liveness | {"id": real}, user_id=urlsplit(amqp_url).username)
    until(lambda: sidecar.sql("SELECT 1 FROM workers WHERE id = %s", real), "the worker")
    assert not sidecar.sql("SELECT 1 FROM workers WHERE id = %s", forged)
