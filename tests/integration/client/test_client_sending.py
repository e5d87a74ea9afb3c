"""Commands through the client: confirmed by a queue, or an error; against the real broker."""

import json
import os
import socket
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from support import DEADLINE, Host, utc

from scheduler.client import BrokerUnavailable, ClientError, CommandRejected, NoAnswer, NoSidecar, SchedulerClient


@pytest.fixture
def client(amqp_url, monkeypatch):
    monkeypatch.setattr("scheduler.client.client.REPLY_SECONDS", DEADLINE)
    with SchedulerClient(amqp_url) as made:
        yield made


def sever(client):
    """Cut the connections that the client keeps, as a firewall or a restarted broker would."""
    for connection in client._pool._idle:
        connection._connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def test_a_virtual_host_without_a_sidecar_is_an_error(vhost):
    with SchedulerClient(vhost) as client, pytest.raises(NoSidecar, match="scheduler consumer"):
        client.schedule(uuid4(), "test.job", every=60)


def test_an_exchange_without_the_sidecars_queue_is_an_error(vhost):
    host = Host(vhost)
    host.channel.exchange_declare("schedule.commands", "topic", durable=True)
    with SchedulerClient(vhost) as client, pytest.raises(NoSidecar):
        client.cancel(uuid4())
    host.close()


def test_a_broker_that_cannot_be_reached_is_an_error_without_a_password():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"amqp://guest:se-cret@127.0.0.1:{nobody.getsockname()[1]}/%2F"
        with SchedulerClient(url, timeout=0.3) as client, pytest.raises(BrokerUnavailable) as caught:
            client.cancel(uuid4())
    assert "se-cret" not in str(caught.value)


@pytest.mark.parametrize("url", [
    "amqps://guest:se-cret@127.0.0.1/%2F?cacertfile=/nowhere.pem", "amqp://guest:se-cret@127.0.0.1/%2F?certfile=/x",
])
def test_certificates_in_the_url_are_read_as_the_sidecar_reads_them(url):
    with SchedulerClient(url) as client, pytest.raises(ClientError, match="certificate") as caught:
        client.cancel(uuid4())
    assert "se-cret" not in str(caught.value)


def test_a_command_arrives_persistent_typed_and_dated(client, host):
    client.schedule(uuid4(), "test.job", {"a": 1}, every=60, correlation_id="c-1",
                    headers={"traceparent": "00-1-2-01"})
    method, properties, body = host.get("scheduler_inbox")
    assert method.routing_key == "request"
    assert (properties.type, properties.delivery_mode, properties.content_type) == (
        "ScheduleRequest", 2, "application/json")
    assert (properties.correlation_id, properties.headers["traceparent"]) == ("c-1", "00-1-2-01")
    assert json.loads(body)["issued_at"].endswith("Z")


def test_each_command_has_its_routing_key(client, host):
    job = uuid4()
    for act in (client.cancel, client.pause, client.resume, client.trigger):
        act(job)
    keys = [host.get("scheduler_inbox")[0].routing_key for _ in range(4)]
    assert keys == ["cancel", "pause", "resume", "trigger"]


def test_a_lost_connection_is_opened_again(client, host):
    client.cancel(uuid4())
    sever(client)
    client.pause(uuid4())
    assert [host.get("scheduler_inbox")[0].routing_key for _ in range(2)] == ["cancel", "pause"]


def test_the_second_broker_of_a_list_is_used(amqp_url, host):
    with SchedulerClient(f"amqp://guest:guest@127.0.0.1:1/%2F, {amqp_url}") as client:
        client.cancel(uuid4())
    host.get("scheduler_inbox")


def test_threads_share_a_client(client, host):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: client.cancel(uuid4()), range(80)))
    bodies = [json.loads(host.get("scheduler_inbox")[2]) for _ in range(80)]
    assert len({body["id"] for body in bodies}) == 80
    assert len({body["issued_at"] for body in bodies}) == 80


def test_a_forked_child_opens_connections_of_its_own(client, host):
    client.cancel(uuid4())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn: pytest itself has threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            client.pause(uuid4())
            code = 0
        finally:
            os._exit(code)
    client.resume(uuid4())
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(host.get("scheduler_inbox")[0].routing_key for _ in range(3)) == ["cancel", "pause", "resume"]


def test_waiting_without_a_consumer_raises_no_answer(client):
    with pytest.raises(NoAnswer, match="scheduler consumer"):
        client.cancel(uuid4(), wait=0.1)


def test_the_sidecars_reply_is_returned_or_raised(client, sidecar):
    sidecar.start("consumer", SCHEDULER_MAX_PAYLOAD_BYTES="50").ready()
    job, moment = uuid4(), utc(days=1)
    accepted = client.schedule(job, "test.job", run_at=moment, wait=True)
    assert accepted is not None
    assert (accepted.id, accepted.status, accepted.next_run_at) == (job, "scheduled", moment)
    assert client.cancel(job, wait=True).status == "cancelled"
    late = client.schedule(job, "test.job", run_at=moment, issued_at=utc() - timedelta(days=1), wait=True)
    assert late.status == "superseded"
    with pytest.raises(CommandRejected) as caught:
        client.schedule(uuid4(), "test.job", {"text": "x" * 100}, every=60, wait=True)
    assert [error.field for error in caught.value.errors] == ["payload"]
    sever(client)
    assert client.cancel(job, wait=True).status == "unchanged"
    with ThreadPoolExecutor(4) as pool:  # each thread gets its own answer
        ids = [uuid4() for _ in range(20)]
        answers = list(pool.map(lambda each: client.schedule(each, "test.job", every=60, wait=True), ids))
    assert [answer.id for answer in answers] == ids


def test_a_queue_that_refuses_the_command_is_an_error(vhost):
    host = Host(vhost)
    host.channel.exchange_declare("schedule.commands", "topic", durable=True)
    host.channel.queue_declare("scheduler_inbox", durable=True,
                               arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    host.channel.queue_bind("scheduler_inbox", "schedule.commands", "cancel")
    with SchedulerClient(vhost) as client, pytest.raises(BrokerUnavailable, match="full"):
        client.cancel(uuid4())
    host.close()
