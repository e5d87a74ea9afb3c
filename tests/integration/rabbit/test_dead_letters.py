"""Any message in scheduler_dead can be listed, dropped, and replayed unchanged."""

import struct

import pika
import pytest
from delayed_support import Raw, headers_only, keeping_raw, raw_headers, short, table, text, value
from support import until

from scheduler.rabbit.dead_letter import read
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue
from scheduler.rabbit.message_forwarding import dead_letter
from scheduler.views.dead_letters import dead_view

# A time in milliseconds: pika cannot read the year 55840, and ends the connection over it.
MILLISECONDS = value("T", "Q", 1_700_000_000_000)
FRACTION = value("d", "d", 1.5)
FORGED = {
    "x-original-exchange": text(b"schedule.commands"), "x-original-expiration": value("I", "i", 5),
    "x-original-user-id": text(b"root"), "x-rejected-reason": text(b"forged"), "x-rejected-at": text(b"2001"),
    "x-dead-reason": text(b"forged"), "x-dead-at": text(b"2001"),
}
DEATH = b"F" + table(exchange=text(b"schedule.commands"), queue=text(b"scheduler_delay"), reason=text(b"expired"))
QUEUES = b"".join(short(b"queue") + text(each) for each in (b"scheduler_delay", b"scheduler_inbox"))
FORGED_DEATH = b"A" + struct.pack(">I", len(DEATH)) + DEATH


@pytest.fixture
def letters(amqp_url):
    dead_letter_queue = DeadLetterQueue([amqp_url])
    yield dead_letter_queue
    dead_letter_queue.close()


def lying(letters, count=1):
    """Wait for this number of dead letters, and return their views."""
    return until(lambda: len(found := letters.page(100).letters) == count and [dead_view(each) for each in found],
                 f"{count} dead letters")


def expired(host, key, body, **headers):
    """Make a delayed message expire at once, because there is no consumer: the broker dead-letters it."""
    flags = struct.pack(">H", 1 << 13 | 1 << 12 | 1 << 8)
    host.channel.basic_publish("schedule.delay", key, body, Raw(flags + table(**headers) + b"\x02" + short(b"1")))


def sent_again(host, queue):
    """Consume a replayed message and return its headers with their types, and the rest."""
    with keeping_raw():
        method, properties, body = host.get(queue)
    headers = raw_headers(properties.raw)
    headers.pop("x-delivery-count", None)  # the queue's own
    return method.routing_key, headers, body


def publish(_):
    return False


def test_undecodable_letters_are_shown_and_replayed_unchanged(host, letters):
    headers = {"x-deliver-at": MILLISECONDS, "fraction": FRACTION, "small": value("b", "b", 7)}
    expired(host, "mail", b"odd", **headers)
    host.publish("mail", b"plain", "schedule.dead")
    plain, odd = sorted(lying(letters, 2), key=lambda each: each.at or "")
    assert (plain.body, odd.body) == ("plain", "odd")
    assert (odd.reason, odd.exchange) == ("expired in scheduler_delay", "schedule.delay")
    assert odd.at.startswith("20")
    assert odd.headers["x-deliver-at"] == {"timestamp": 1_700_000_000_000}
    assert (odd.headers["fraction"], odd.headers["small"]) == (1.5, 7)
    assert odd.headers["x-death"][0]["queue"] == "scheduler_delay"
    assert letters.replay(odd.id, publish)
    assert sent_again(host, "scheduler_delay") == ("mail", headers, b"odd")
    assert letters.drop(plain.id)
    assert letters.page(1).letters == []


def test_undecodable_letters_can_be_dropped(host, letters):
    host.channel.basic_publish("schedule.dead", "odd", b"", headers_only(at=MILLISECONDS))
    [odd] = lying(letters)
    assert letters.find(odd.id).id == odd.id
    assert letters.drop(odd.id)
    assert letters.page(1).letters == []


def test_a_binary_routing_key_is_shown_and_replayed(host, letters):
    expired(host, b"\xff\xfe", b"odd", x_delay=text(b"soon"))
    [odd] = lying(letters)
    assert odd.routing_key == "\\xff\\xfe"
    assert odd.model_dump_json()
    assert letters.replay(odd.id, publish)
    assert sent_again(host, "scheduler_delay") == (b"\xff\xfe", {"x-delay": text(b"soon")}, b"odd")


@pytest.mark.parametrize("deaths", [
    [{"time": "yesterday"}], [{"time": 5}], [{"time": None}], [], ["x"], "x", [{}],
    [{"exchange": 5, "queue": ["a"], "reason": None}],
])
def test_forged_x_death_headers_are_tolerated(host, letters, deaths):
    host.publish("odd", b"", "schedule.dead", headers={"x-death": deaths})
    [odd] = lying(letters)
    assert (odd.at, odd.exchange) == (None, None)
    assert odd.headers == {"x-death": deaths}


def test_values_of_every_kind_are_shown(host, letters):
    deep = b"V"
    for _ in range(30):
        deep = b"F" + struct.pack(">I", 2 + len(deep)) + short(b"a") + deep
    host.channel.basic_publish("schedule.dead", "kinds", b"", headers_only(
        no=b"t\x00", void=b"V", bytes=b"x\x00\x00\x00\x02\xff\x00",
        latin=text(b"\xe9"), decimal=b"D" + struct.pack(">Bi", 2, 314), at=value("T", "Q", 0), deep=deep,
        array=b"A\x00\x00\x00\x03t\x01V", nested=b"F" + table(at=MILLISECONDS),
    ))
    [letter] = lying(letters)
    found = letter.headers
    assert letter.model_dump_json()
    assert found.pop("deep")["a"]["a"]
    assert found == {
        "no": False, "void": None, "bytes": "/wA=", "latin": "6Q==", "decimal": "3.14",
        "at": "1970-01-01T00:00:00.000000Z", "array": [True, None],
        "nested": {"at": {"timestamp": 1_700_000_000_000}},
    }


def test_invalid_properties_are_shown_as_empty():
    letter = read(b"k", b"\xff", b"body", 1)
    assert (letter.headers, letter.properties, letter.exchange, letter.body) == ({}, {}, None, b"body")


def test_properties_are_shown_and_sent_again_as_they_were(host, letters):
    known = {
        "content_type": "a/b", "content_encoding": "c", "priority": 3, "correlation_id": "d", "reply_to": "e",
        "message_id": "f", "timestamp": 5, "type": "g", "app_id": "h", "cluster_id": "i",
    }
    headers = {"x-original-exchange": "schedule.delay", "x-original-expiration": "60000", "x-delay": 5}
    host.channel.basic_publish("schedule.dead", "k", b"", pika.BasicProperties(headers=headers, **known))
    [letter] = lying(letters)
    assert letter.properties == known
    assert letters.replay(letter.id, publish)
    _, properties, _ = host.get("scheduler_delay")
    assert {name: getattr(properties, name) for name in known} == known
    assert properties.headers.pop("x-delivery-count", 0) == 0  # the queue's own
    assert (properties.headers, properties.expiration, properties.delivery_mode) == ({"x-delay": 5}, "60000", 2)


@pytest.mark.parametrize("key", ["cancel", "due"])
def test_publisher_headers_do_not_choose_the_replay_of_broker_letters(host, letters, key):
    headers = FORGED | {"x-delay": text(b"soon"), "x-attempts": value("b", "b", 7)}
    expired(host, key, b"{}", **headers, **{"x-death": FORGED_DEATH})
    [letter] = lying(letters)
    assert (letter.exchange, letter.kind) == ("schedule.delay", "message")
    assert letter.reason == "expired in scheduler_delay"
    assert letter.at != "2001"
    assert letters.replay(letter.id, publish)
    assert sent_again(host, "scheduler_delay") == (key, headers, b"{}")


def twice(name, first, second):
    """Two headers of one name."""
    entries = b"".join(short(name) + each for each in (first, second))
    return struct.pack(">I", len(entries)) + entries


@pytest.mark.parametrize("headers", [
    twice(b"x-death", FORGED_DEATH, FORGED_DEATH.replace(b"scheduler_delay", b"scheduler_inbox")),
    table(**{"x-death": b"A" + struct.pack(">IcI", 5 + len(QUEUES), b"F", len(QUEUES)) + QUEUES}),
])
def test_of_two_headers_with_one_name_the_first_counts_as_for_the_broker(headers):
    letter = read(b"cancel", struct.pack(">H", 1 << 13) + headers, b"{}", 1)
    assert (letter.reason.split(" in ")[1], letter.exchange) == ("scheduler_delay", "schedule.delay")


def test_delivery_counts_do_not_change_a_letters_id():
    found = [read(b"k", headers_only(own=b"V", **{"x-acquired-count": value("I", "i", count)}).written, b"", 1)
             for count in (1, 2)]
    assert found[0].id == found[1].id
    assert found[0].headers == {"own": None}


@pytest.mark.parametrize(("key", "added", "exchange"), [
    ("cancel", {"x-rejected-reason": "why"}, "schedule.commands"),
    ("cancel", {"x-rejected-reason": "why", "x-original-exchange": "schedule.delay"}, "schedule.delay"),
    ("due", {"x-rejected-reason": "why"}, None),
    ("cancel", {}, None),
])
def test_publisher_headers_do_not_choose_the_replay_of_sidecar_letters(key, added, exchange):
    headers = FORGED | {"x-original-exchange": text(b"schedule.delayed"), "x-death": FORGED_DEATH, "own": b"V"}
    sent = dead_letter(key, headers_only(**headers).written, b"{}", added)
    letter = read(sent.routing_key, sent.properties, b"{}", 1)
    assert (letter.exchange, letter.is_dead_run) == (exchange, False)
    assert letter.headers == added | {"own": None}
    assert raw_headers(letter.original_properties()) == {"own": b"V"}


@pytest.mark.parametrize(("queue", "exchange"), [
    ("scheduler_inbox", "schedule.commands"), ("scheduler_results", "schedule.commands"),
    ("scheduler_delay", "schedule.delay"), ("scheduler_delay_orders", "orders.delay"),
    ("mainapp_due", None), (None, None), (["scheduler_inbox"], None),
])
def test_the_source_exchange_follows_from_the_dead_lettering_queue(queue, exchange):
    deaths = {"x-death": [{"queue": queue, "exchange": "schedule.commands", "reason": "expired"}]}
    raw = b"".join(pika.BasicProperties(headers=deaths).encode())
    assert read(b"cancel", raw, b"", 1).exchange == exchange
    deaths["x-death"][0]["exchange"] = "schedule.delayed"
    raw = b"".join(pika.BasicProperties(headers=deaths).encode())
    assert read(b"cancel", raw, b"", 1).exchange == (exchange or "schedule.delayed")
