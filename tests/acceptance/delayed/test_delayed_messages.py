"""Delayed messages: stored, cancelled, in order, undelivered, and with the right user."""

from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pika
import pytest
from delayed_support import Shop, bodies, frozen, headers_only, keeping_raw, stored, value, waiting
from support import DEADLINE, may_have_let_go, until

HOUR = 3_600_000


def due_now(sidecar):
    """Make all pending messages due."""
    sidecar.sql("UPDATE delayed_messages SET wake_at = now() WHERE exchange IS NOT NULL")
    sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")


def cancels(sidecar):
    return [str(row["message_id"]) for row in
            sidecar.sql("SELECT message_id FROM delayed_messages WHERE exchange IS NULL")]


def named(message_id, **headers):
    return pika.BasicProperties(message_id=message_id, headers=headers, delivery_mode=2)


def answer(shop, **fields):
    """Send a cancel and return what is answered."""
    replies = shop.channel.queue_declare("", exclusive=True).method.queue
    shop.publish("cancel", fields, reply_to=replies)
    return shop.get(replies)[2].decode()


def test_messages_without_a_delay_header_bypass_the_sidecar(shop, sidecar):
    queue = shop.queue()
    shop.send(queue, b"plain", other=5)
    assert shop.take(queue, 1)[0][1].headers == {"other": 5}
    with pytest.raises(pika.exceptions.UnroutableError):
        shop.send("nobody", b"plain")
    shop.send("nobody", b"delayed", x_delay=HOUR)  # it has a queue: ours
    stored(sidecar, 1)


@pytest.mark.parametrize("size", [0, 1, 131_063, 131_064, 131_065, 16 * 1024**2])  # the most for RabbitMQ 4
def test_a_body_of_any_size_and_content(shop, size):
    queue, body = shop.queue(), bytes(range(256)) * (size // 256 + 1)
    shop.send(queue, body[:size], x_delay=1)
    assert bodies(shop.take(queue, 1)) == [body[:size]]


def test_every_property_is_kept(shop):
    queue = shop.queue(arguments={"x-max-priority": 9})
    properties = pika.BasicProperties(
        content_type="a/b", content_encoding="gzip", headers={"x-delay": 20, "x": [True, None, {"y": -1}]},
        delivery_mode=1, priority=7, correlation_id="c", reply_to="r", expiration="3600000", message_id="any text",
        timestamp=1_700_000_000, type="t", app_id="a", cluster_id="l",
    )
    shop.send(queue, b"kept", properties=properties)
    [(method, found, _)] = shop.take(queue, 1)
    properties.headers["x-delay"] = -20
    assert found == properties
    assert (method.exchange, method.routing_key) == ("schedule.delayed", queue)


def test_cc_applies_at_delivery(shop):
    queue, copy = shop.queue(), shop.queue()
    shop.send(queue, b"twice", x_delay=20, CC=[copy])
    assert bodies(shop.take(queue, 1) + shop.take(copy, 1)) == [b"twice"] * 2


def test_a_routing_key_of_any_bytes(shop, sidecar):
    fan = shop.queue("news", "")
    for key in (b"\xff\xfe", b"a\x00b", b"", b"k" * 255):
        shop.send(key, b"key", "news.delay", properties=headers_only(x_delay=value("I", "i", 1)))
    with keeping_raw():
        found = {method.routing_key for method, _, _ in shop.take(fan, 4)}
    assert found == {b"\xff\xfe", "a\x00b", "", "k" * 255}
    until(lambda: not waiting(sidecar), "nothing left")


def test_a_binding_that_is_added_after_publishing_counts(shop, sidecar):
    key = uuid4().hex
    shop.send(key, b"late binding", x_delay=HOUR)
    stored(sidecar, 1)
    queue = shop.queue("schedule.delayed", key)
    due_now(sidecar)
    assert bodies(shop.take(queue, 1)) == [b"late binding"]


def test_a_deleted_queue_loses_and_duplicates_no_message(shop, sidecar):
    queue, gone = shop.queue(), shop.queue()
    producer = sidecar.processes[1]
    with frozen(producer):
        for number in range(5):  # without a message_id: only their content identifies them
            shop.send(queue, b"%d" % number, x_delay=1)
            shop.send(gone, b"%d" % number, x_delay=1)
        stored(sidecar, 10)
        shop.channel.queue_delete(gone)
    assert bodies(shop.take(queue, 5)) == [b"0", b"1", b"2", b"3", b"4"]
    rows = until(lambda: rows if (rows := waiting(sidecar)) and all(row["retries"] for row in rows) else None,
                 "five refusals")
    assert len(rows) == 5
    assert all("no queue" in row["problem"] and row["unroutable_at"] for row in rows)
    again = shop.queue("schedule.delayed", gone)
    due_now(sidecar)
    assert sorted(bodies(shop.take(again, 5))) == [b"0", b"1", b"2", b"3", b"4"]
    until(lambda: not waiting(sidecar), "nothing left")
    assert not shop.drain(queue)


def test_an_unroutable_message_is_dead_lettered_after_an_hour(shop, sidecar):
    key = f"nobody.{uuid4().hex}"
    properties = pika.BasicProperties(headers={"x-delay": 1, "mine": 1}, expiration="60000", correlation_id="c")
    shop.send(key, b"given up", properties=properties)
    until(lambda: any(row["unroutable_at"] for row in waiting(sidecar)), "its first return")
    sidecar.sql("UPDATE delayed_messages SET unroutable_at = now() - interval '59 minutes', wake_at = now()")
    due_now(sidecar)
    until(lambda: all(row["retries"] > 1 for row in waiting(sidecar)), "another try")
    with frozen(sidecar.processes[1]):  # it retries automatically, periodically
        sidecar.sql("UPDATE delayed_messages SET unroutable_at = now() - interval '60 minutes'")
        [row] = waiting(sidecar)
        due_now(sidecar)
    until(lambda: not waiting(sidecar), "that it is dead")
    found = until(lambda: next((got for got in drained(shop) if got[2] == b"given up"), None), "the dead letter")
    method, dead, _ = found
    assert method.routing_key == key
    headers = dead.headers
    assert "returned: no queue is bound" in headers["x-dead-reason"]
    assert (headers["x-original-exchange"], headers["x-original-expiration"]) == ("schedule.delayed", "60000")
    assert (headers["mine"], headers["x-delay"], headers["x-attempts"]) == (1, -1, row["retries"])
    assert headers["x-dead-at"] > headers["x-due-at"]
    assert (dead.expiration, dead.correlation_id, dead.delivery_mode) == (None, "c", 2)


def drained(shop):
    while (got := shop.channel.basic_get("scheduler_dead", auto_ack=True))[0]:
        yield got


def test_a_message_rejected_by_its_consumer_can_be_delayed_again(shop):
    """The usual way to retry with the plugin: a queue whose dead letters go to the delayed exchange."""
    queue = shop.queue(arguments={"x-dead-letter-exchange": "schedule.delay"})
    shop.send(queue, b"work", x_delay=30)
    for attempt in range(3):
        method, properties, _ = until(
            lambda: got if (got := shop.channel.basic_get(queue))[0] else None, "the next attempt")
        deaths = (properties.headers.get("x-death") or [{"count": 0}])[0]["count"]
        assert deaths in {attempt, min(attempt, 1)}  # RabbitMQ 4 counts from 1 after each publication
        assert properties.headers["x-delay"] == -30  # as with the plugin: a new delay must be set explicitly
        shop.channel.basic_nack(method.delivery_tag, requeue=False)
    shop.channel.basic_ack(until(lambda: shop.channel.basic_get(queue)[0], "the last").delivery_tag)


def test_a_burst_for_one_instant_keeps_its_order(shop, sidecar):
    queue, many = shop.queue(), 3000
    headers = {"x-delay": 300}
    channel = shop.connection.channel()  # without confirms: all at once
    with frozen(sidecar.processes[1]):
        for number in range(many):
            channel.basic_publish("schedule.delay", queue, b"%d" % number, pika.BasicProperties(headers=headers))
        stored(sidecar, many)
    in_order(bodies(shop.take(queue, many)), sidecar.processes[1])
    at = sidecar.sql("SELECT now() + interval '1.5 seconds' AS at")[0]["at"].isoformat()
    for number in range(many):
        properties = pika.BasicProperties(headers={"x-deliver-at": at})
        channel.basic_publish("schedule.delay", queue, b"%d" % number, properties)
    in_order(bodies(shop.take(queue, many)), sidecar.processes[1])


def in_order(came, producer):
    wanted = [b"%d" % number for number in range(len(came))]
    assert came == wanted or (may_have_let_go(producer) and sorted(came) == sorted(wanted))


def test_a_message_is_cancelled_by_its_message_id(shop, sidecar):
    queue, message_id = shop.queue(), str(uuid4())
    shop.send(queue, b"cancelled", properties=named(message_id.upper(), **{"x-delay": HOUR}))
    shop.send(queue, b"not", properties=named(str(uuid4()), **{"x-delay": HOUR}))
    stored(sidecar, 2)
    assert '"status":"cancelled"' in answer(shop, id=message_id)
    assert [bytes(row["body"]) for row in waiting(sidecar)] == [b"not"]
    # The same again, from a publisher that was not sure, or delivered a second time: it stays cancelled.
    shop.send(queue, b"cancelled", properties=named(message_id, **{"x-delay": 1}))
    due_now(sidecar)
    shop.send(queue, b"next", x_delay=1)
    assert sorted(bodies(shop.take(queue, 2))) == [b"next", b"not"]
    until(lambda: not waiting(sidecar), "nothing left")
    assert not shop.drain(queue)


@pytest.mark.parametrize(
    "spelled", [lambda each: each.hex, lambda each: each.hex.upper(), lambda each: str(each).upper()]
)
def test_a_uuid_is_the_same_with_or_without_dashes_in_either_case(shop, sidecar, spelled):
    queue, cancelled, emitted = shop.queue(), uuid4(), uuid4()
    for each in (cancelled, emitted):
        shop.send(queue, str(each).encode(), properties=named(spelled(each), **{"x-delay": HOUR}))
    stored(sidecar, 2)
    assert {str(row["message_id"]) for row in waiting(sidecar)} == {str(cancelled), str(emitted)}
    assert '"status":"cancelled"' in answer(shop, id=str(cancelled))
    due_now(sidecar)
    [(_, properties, body)] = shop.take(queue, 1)
    assert (body, properties.message_id) == (str(emitted).encode(), spelled(emitted))
    until(lambda: not waiting(sidecar), "nothing left")
    assert not shop.drain(queue)


def test_an_early_cancel_applies_for_an_hour(shop, sidecar):
    queue, held, over = shop.queue(), str(uuid4()), str(uuid4())
    for each in (held, over):
        assert '"status":"cancelled"' in answer(shop, id=each)
    sidecar.sql("UPDATE delayed_messages SET due_at = due_at - interval '1 hour' WHERE message_id = %s", over)
    dropped = sidecar.processes[0].metric("scheduler_delayed_dropped_total")
    shop.send(queue, b"held", properties=named(held, **{"x-delay": 1}))
    shop.send(queue, b"over", properties=named(over, **{"x-delay": 1}))
    assert bodies(shop.take(queue, 1)) == [b"over"]
    until(lambda: sidecar.processes[0].metric("scheduler_delayed_dropped_total") > dropped, "its count")
    assert held in cancels(sidecar)
    # After an hour, a producer deletes it.
    sidecar.sql("UPDATE delayed_messages SET due_at = now(), wake_at = now() WHERE message_id = %s", held)
    sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
    until(lambda: held not in cancels(sidecar), "the cancel to be forgotten")
    assert not shop.drain(queue)


def test_a_job_cancel_stores_no_delayed_tombstone(shop, sidecar):
    job = shop.request(run_at="2099-01-01T00:00:00Z")
    sidecar.stored(job)
    assert '"status":"cancelled"' in answer(shop, id=job)
    assert '"status":"unchanged"' in answer(shop, id=job)
    assert job not in cancels(sidecar)


def test_a_pending_uuid_is_a_duplicate(shop, sidecar):
    queue, message_id = shop.queue(), str(uuid4())
    shop.send(queue, b"first", properties=named(message_id, **{"x-delay": HOUR}))
    stored(sidecar, 1)
    shop.send(queue, b"second", properties=named(message_id, **{"x-delay": 1}))
    shop.send(queue, b"second", properties=named(message_id.replace("-", ""), **{"x-delay": 1}))
    for text in ("no UUID", f"{{{message_id}}}"):  # an id for another purpose: every copy is delivered
        shop.send(queue, b"other", properties=named(text, **{"x-delay": 1}))
        shop.send(queue, b"other", properties=named(text, **{"x-delay": 1}))
    assert bodies(shop.take(queue, 4)) == [b"other"] * 4
    due_now(sidecar)
    assert bodies(shop.take(queue, 1)) == [b"first"]
    until(lambda: not waiting(sidecar), "nothing left")
    shop.send(queue, b"third", properties=named(message_id, **{"x-delay": 1}))
    assert bodies(shop.take(queue, 1)) == [b"third"]


@pytest.fixture
def other_user(stack, vhost):
    """Return a URL of the same virtual host with a different user."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    name = urlsplit(vhost).path[1:]
    everything = ",".join(['<<".*">>'] * 3)
    stack.rabbitmq.evaluate(
        'case rabbit_auth_backend_internal:exists(<<"somebody">>) of true -> ok; false -> '
        'rabbit_auth_backend_internal:add_user(<<"somebody">>, <<"secret">>, <<"test">>) end, '
        f'ok = rabbit_auth_backend_internal:set_permissions(<<"somebody">>, <<"{name}">>, {everything}, <<"me">>)'
    )
    parts = urlsplit(vhost)
    return urlunsplit(parts._replace(netloc=f"somebody:secret@{parts.hostname}:{parts.port}"))


def test_a_user_id_that_is_not_ours_becomes_a_header(shop, sidecar, other_user):
    ours = urlsplit(sidecar.amqp_url).username
    queue, other = shop.queue(), Shop(other_user)
    other.send(queue, b"theirs", properties=pika.BasicProperties(headers={"x-delay": 1}, user_id="somebody"))
    shop.send(queue, b"ours", properties=pika.BasicProperties(headers={"x-delay": 1}, user_id=ours))
    other.close()
    found = {body: properties for _, properties, body in shop.take(queue, 2)}
    assert (found[b"theirs"].user_id, found[b"theirs"].headers) == (
        None, {"x-delay": -1, "x-original-user-id": "somebody"})
    assert (found[b"ours"].user_id, found[b"ours"].headers) == (ours, {"x-delay": -1})


def test_no_header_chooses_another_exit(shop):
    events, queue = shop.listen("schedule.events", "#"), shop.queue("orders", "key")
    headers = {"x-delay": 1, "exchange": "schedule.events", "x-original-exchange": "schedule.events",
               "x-dead-letter-exchange": "schedule.events", "x-first-death-exchange": "schedule.events"}
    shop.send("key", b"here", "orders.delay", properties=pika.BasicProperties(headers=headers))
    assert shop.take(queue, 1)[0][0].exchange == "orders"
    assert not shop.drain(events)


def test_an_exit_by_headers(shop):
    queue = shop.queue("by_header", "", binding={"x-match": "all", "color": "red"})
    for color in ("blue", "red"):
        shop.send("k", color.encode(), "by_header.delay", x_delay=1, color=color)
    assert bodies(shop.take(queue, 1)) == [b"red"]


def test_messages_that_expire_before_storing_are_dead_lettered(shop, sidecar):
    with frozen(sidecar.processes[0]):
        # Unacknowledged messages of the consumer expire only when the broker has closed its connection.
        for _ in range(3):
            properties = pika.BasicProperties(headers={"x-delay": HOUR}, expiration="1")
            shop.send("expires", b"expired", properties=properties)
        dead = until(lambda: next((got for got in drained(shop) if got[2] == b"expired"), None), "the dead letter",
                     2 * DEADLINE)
    assert dead[1].headers["x-death"][0]["reason"] == "expired"
    assert dead[1].headers["x-delay"] == HOUR


def test_a_deleted_exit_blocks_no_other_message(shop, sidecar):
    """Publishing to a missing exchange would close the channel of all events."""
    queue = shop.queue()
    sidecar.sql("INSERT INTO delayed_messages (exchange, routing_key, properties, body, due_at, wake_at) "
                "VALUES ('gone', 'k', '\\x0000', 'lost', now(), now())")
    shop.send(queue, b"next", x_delay=1)
    assert bodies(shop.take(queue, 1)) == [b"next"]
    row = until(lambda: next((row for row in waiting(sidecar) if row["retries"]), None), "it is kept")
    assert "SCHEDULER_DELAY_EXCHANGES" in row["problem"]
    sidecar.sql("UPDATE delayed_messages SET unroutable_at = now() - interval '1 hour'")
    due_now(sidecar)
    method, dead, _ = until(lambda: next((got for got in drained(shop) if got[2] == b"lost"), None), "it is dead")
    assert (method.routing_key, dead.headers["x-original-exchange"]) == ("k", "gone")
