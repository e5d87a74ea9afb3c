"""The contract of delayed messages beyond the plugin's behaviour, line by line."""

import pika
from delayed_support import Shop, bodies, frozen, stored, waiting
from support import Sidecar, held_too_long, until

HOUR = 3_600_000


def due_now(sidecar):
    """Make all pending messages due."""
    sidecar.sql("UPDATE delayed_messages SET wake_at = now() WHERE exchange IS NOT NULL")
    sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")


def test_undelayed_messages_pass_while_the_sidecar_is_stopped(shop, sidecar):
    queue, order = shop.queue(), shop.queue("orders", "key")
    with frozen(sidecar.processes[0]), frozen(sidecar.processes[1]):
        shop.send(queue, b"plain", other=5)
        shop.send("key", b"order", "orders.delay", properties=pika.BasicProperties())  # no header at all
        assert bodies(shop.take(queue, 1) + shop.take(order, 1)) == [b"plain", b"order"]


def test_expiration_counts_from_delivery(shop, sidecar):
    """Its delay is longer than its expiration; the expiration starts at delivery."""
    expired = shop.queue("amq.fanout", "")
    queue = shop.queue(arguments={"x-dead-letter-exchange": "amq.fanout"})
    shop.send(queue, b"lives", properties=pika.BasicProperties(headers={"x-delay": HOUR}, expiration="1500"))
    stored(sidecar, 1)
    until(lambda: sidecar.sql("SELECT 1 FROM delayed_messages WHERE stored_at < now() - interval '1.6 seconds'"),
          "its time to live to be over")
    due_now(sidecar)
    [(_, properties, body)] = shop.take(expired, 1)  # through the queue: it was not dead-lettered before
    [death] = properties.headers["x-death"]
    assert (body, death["queue"], death["reason"]) == (b"lives", queue, "expired")
    assert death["original-expiration"] == "1500"


def test_bcc_is_removed_and_not_revealed(shop):
    """The broker removes it on arrival."""
    queue, secret = shop.queue(), shop.queue()
    shop.send(queue, b"kept from us", x_delay=20, BCC=[secret])
    [(_, properties, _)] = shop.take(queue, 1)
    assert properties.headers == {"x-delay": -20}
    assert not shop.drain(secret)


def test_a_replayed_dead_letter_is_delayed_again(shop, sidecar):
    """A retry as users of the plugin do it: reject, read from the dead letters, publish with a new delay."""
    dead = shop.queue("amq.fanout", "")
    queue = shop.queue(arguments={"x-dead-letter-exchange": "amq.fanout"})
    shop.send(queue, b"work", x_delay=20)
    for attempt in (1, 2):
        method = until(lambda: shop.channel.basic_get(queue)[0], "the attempt")
        shop.channel.basic_nack(method.delivery_tag, requeue=False)
        [(_, properties, body)] = shop.take(dead, 1)
        headers = properties.headers
        assert headers["x-delay"] < 0
        assert headers["x-death"][0]["queue"] == queue
        until(lambda: not waiting(sidecar), "that it is settled")  # otherwise it would be frozen with the lock
        with frozen(sidecar.processes[1]):
            again = pika.BasicProperties(headers={**headers, "x-delay": 40 * attempt})
            shop.send(queue, body, properties=again)
            [row] = stored(sidecar, 1)
        assert (row["due_at"] - row["stored_at"]).total_seconds() == 0.04 * attempt
    [(_, properties, body)] = shop.take(queue, 1)
    assert (body, properties.headers["x-delay"]) == (b"work", -80)


def test_several_replicas_deliver_each_message_once(stack, template):
    database, many = stack.create_database(template=template), 2000
    vhost = stack.create_vhost()
    several = Sidecar(database, vhost).up(consumers=2, producers=3)
    host = Shop(vhost)
    queue = host.queue()
    channel = host.connection.channel()  # without confirms: all at once
    for number in range(many):
        properties = pika.BasicProperties(headers={"x-delay": number % 500})
        channel.basic_publish("schedule.delay", queue, b"%d" % number, properties)
    came = sorted(map(int, bodies(host.take(queue, many))))
    until(lambda: not waiting(several), "nothing left")
    came += map(int, host.drain(queue))
    assert came == list(range(many)) or (held_too_long(several.processes) and set(came) == set(range(many)))
    host.close()
    assert several.close() == [0] * 5
    stack.drop_database(database)
    stack.delete_vhost(vhost)
