"""Delay headers of every type, and the delivered messages, over a real broker, byte by byte."""

import json
import struct
from datetime import timedelta

import pika
import pytest
from delayed_support import Raw, frozen, headers_only, keeping_raw, raw_headers, short, stored, table, text, value
from support import until, utc

HOUR = 3_600_000
VOID = b"V"


def rejected(shop, body):
    """Wait for the dead letter with this body and return its properties."""
    def found():
        method, properties, got = shop.channel.basic_get("scheduler_dead", auto_ack=True)
        return (properties,) if method is not None and got == body else None

    return until(found, f"the dead letter {body!r}")[0]


@pytest.mark.parametrize(("written", "milliseconds"), [
    (value("b", "b", 100), 100), (value("B", "B", 200), 200), (value("s", "h", 300), 300),
    (value("u", "H", 40_000), 40_000), (value("I", "i", HOUR), HOUR), (value("i", "I", 2**32 - 1), 2**32 - 1),
    (value("l", "q", 2**32), 2**32), (value("L", "q", 77), 77),
    (value("f", "f", 1000.75), 1000), (value("d", "d", HOUR + 0.99), HOUR),
    (b"D" + struct.pack(">Bi", 2, 123_456), 1234), (text(b"2500"), 2500), (text(b"+7"), 7),
], ids=["b", "B", "s", "u", "I", "i", "l", "L", "f", "d", "D", "text", "signed-text"])
def test_every_number_type_delays_and_is_delivered_negated(shop, sidecar, written, milliseconds):
    queue = shop.queue()
    with frozen(sidecar.processes[1]):
        shop.send(queue, properties=headers_only(before=text(b"a"), x_delay=written, after=VOID))
        [row] = stored(sidecar, 1)
        assert row["due_at"] - row["stored_at"] == timedelta(milliseconds=milliseconds)
        sidecar.sql("UPDATE delayed_messages SET wake_at = now()")
        sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
    with keeping_raw():
        [(_, properties, _)] = shop.take(queue, 1)
    assert raw_headers(properties.raw) == {
        "before": text(b"a"), "x-delay": value("l", "q", -milliseconds), "after": VOID,
    }


@pytest.mark.parametrize("written", [
    value("I", "i", 0), value("I", "i", -1), value("b", "b", -128), value("l", "q", -(2**63)),
    value("d", "d", -1e300), value("f", "f", 0.5), text(b"0"), text(b"-5"), b"D" + struct.pack(">Bi", 1, -77),
], ids=["0", "-1", "byte", "least", "huge", "fraction", "text-0", "text-5", "decimal"])
def test_a_delay_of_zero_or_less_is_immediate_and_unchanged(shop, written):
    queue = shop.queue()
    shop.send(queue, properties=headers_only(x_delay=written))
    with keeping_raw():
        [(_, properties, _)] = shop.take(queue, 1)
    assert raw_headers(properties.raw) == {"x-delay": written}


@pytest.mark.parametrize(("headers", "words"), [
    ({"x_delay": text(b"soon")}, "x-delay: must be a number of milliseconds"),
    ({"x_delay": text(b"5.5")}, "not '5.5'"),
    ({"x_delay": text(b"\xff")}, "x-delay"),
    ({"x_delay": VOID}, "not nothing"),
    ({"x_delay": b"t\x01"}, "not True"),
    ({"x_delay": b"F\x00\x00\x00\x00"}, "a value of type F"),
    ({"x_delay": value("l", "q", 2**62)}, "more than 100 years ahead"),
    ({"x_delay": text(b"9" * 40)}, "more than 100 years ahead"),
    ({"x_opt_delivery_delay": text(b"")}, "x-opt-delivery-delay: must be a number"),
    ({"x_opt_delivery_time": value("l", "q", 2**62)}, "x-opt-delivery-time: is more than 100 years ahead"),
    ({"x_deliver_at": text(b"tomorrow")}, "x-deliver-at: must be RFC 3339"),
    ({"x_deliver_at": text(b"2026-02-30T00:00:00Z")}, "is not a date and time that exists"),
    ({"x_deliver_at": text(b"9999-12-31T23:59:59Z")}, "more than 100 years ahead"),
    ({"x_deliver_at": value("T", "Q", 1_800_000_000_000)}, "it is in seconds since 1970"),
    ({"x_deliver_at": value("l", "q", 5)}, "RFC 3339 text or an AMQP timestamp"),
    ({"x_deliver_at": text(b"2026-12-01T00:00:00Z"), "x_delay": text(b"?")}, "x-delay: must be a number"),
])
def test_invalid_or_too_long_delays_are_rejected_with_the_reason(shop, headers, words):
    events = shop.listen("schedule.events", "rejected")
    body = repr(headers).encode()
    shop.send("any.key", body, properties=headers_only(**headers))
    with keeping_raw():
        properties = rejected(shop, body)
    kept = raw_headers(properties.raw)
    kept.pop("x-delivery-count", None)  # from scheduler_dead, which counts each read
    assert words in kept.pop("x-rejected-reason")[5:].decode()
    assert kept.pop("x-original-exchange") == text(b"schedule.delay")
    assert kept.pop("x-rejected-at")
    assert kept == {name.replace("_", "-"): each for name, each in headers.items()}
    [problem] = json.loads(shop.get(events)[2])["errors"]
    assert words in f"{problem['field']}: {problem['problem']}"


def test_a_rejected_message_keeps_its_properties_and_is_not_announced(shop):
    replies = shop.listen("amq.topic", "nothing")
    properties = pika.BasicProperties(
        headers={"x-delay": "never", "a": [1, {"b": None}]}, content_type="a/b", priority=3, correlation_id="c",
        reply_to=replies, expiration="60000", message_id="m", timestamp=5, type="t", app_id="x",
    )
    shop.send("k", b"\x00rejected", properties=properties)
    dead = rejected(shop, b"\x00rejected")
    headers = dead.headers
    assert headers["x-original-expiration"] == "60000"
    assert {name: headers[name] for name in ("x-delay", "a")} == properties.headers
    assert (dead.expiration, dead.delivery_mode) == (None, 2)
    for name in ("content_type", "priority", "correlation_id", "reply_to", "message_id", "timestamp", "type"):
        assert getattr(dead, name) == getattr(properties, name)
    shop.send(queue := shop.queue(), b"next", x_delay=1)
    assert shop.take(queue, 1)
    assert not shop.drain(replies)


def test_the_other_delay_headers_apply_and_are_removed(shop, sidecar):
    queue, at = shop.queue(), utc(hours=1).replace(microsecond=123_000)
    ms, seconds = int(at.timestamp() * 1000), int(at.timestamp())
    written = at.isoformat()
    with frozen(sidecar.processes[1]):
        for each in (
            {"x_deliver_at": text(f"{written}9".replace("+00:00", "").encode() + b"+00:00")},
            {"x_deliver_at": text(at.strftime("%Y-%m-%dT%H:%M:%S.1230000Z").encode())},
            {"x_deliver_at": value("T", "Q", seconds)},
            {"x_opt_delivery_time": value("l", "q", ms)},
            {"x_opt_delivery_time": text(b"%d" % ms), "x_opt_delivery_delay": value("I", "i", 5)},
            {"x_opt_delivery_delay": value("I", "i", HOUR), "x_delay": value("I", "i", 5)},
            {"x_delay": value("I", "i", 5), "x_deliver_at": text(written.encode())},
            {"x_deliver_at": text(b"1999-12-31T23:59:59Z")},
            {"x_opt_delivery_time": value("l", "q", -(2**63))},
        ):
            shop.send(queue, properties=headers_only(other=VOID, **each))
        rows = stored(sidecar, 9)
        by_id = sorted(rows, key=lambda row: row["id"])
        exact = [at, at, at.replace(microsecond=0), at, at]
        assert [row["due_at"] for row in by_id[1:5]] == exact[1:]
        assert [row["due_at"] - row["stored_at"] for row in by_id[5:6]] == [timedelta(hours=1)]
        assert by_id[6]["due_at"] == at
        assert [row["due_at"] - row["stored_at"] for row in by_id[7:]] == [timedelta(), timedelta()]
        sidecar.sql("UPDATE delayed_messages SET wake_at = now()")
        sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
    with keeping_raw():
        found = [raw_headers(properties.raw) for _, properties, _ in shop.take(queue, 9)]
    plain, negated = {"other": VOID}, {"other": VOID, "x-delay": value("l", "q", -5)}
    assert sorted(found, key=len) == [plain] * 7 + [negated] * 2


def test_headers_that_pika_cannot_decode_are_delivered_unchanged(shop):
    queue = shop.queue()
    deep = b"V"
    for _ in range(2000):
        deep = b"A" + struct.pack(">I", len(deep)) + deep
    kept = {
        "year_beyond_9999": value("T", "Q", 1_800_000_000_000),
        "no_utf8": text(b"\xff\xfe"), "bytes": b"x" + struct.pack(">I", 3) + b"\x00\x01\x02", "deep": deep,
        "small": value("b", "b", -1), "float": value("f", "f", 0.1),
    }
    flags = sum(1 << bit for bit in (15, 13, 12, 11, 7))
    raw = (
        struct.pack(">H", flags) + short(b"\xff") + table(**kept, x_delay=value("I", "i", 50)) + b"\x01\x07"
        + short(b"no UUID \xff")
    )
    shop.send(queue, b"\x00\xff", properties=Raw(raw))
    out = table(**kept, x_delay=value("l", "q", -50))
    wanted = struct.pack(">H", flags) + short(b"\xff") + out + b"\x01\x07" + short(b"no UUID \xff")
    with keeping_raw():
        [(_, properties, body)] = shop.take(queue, 1)
        shop.send(queue, exchange="", properties=Raw(wanted))  # RabbitMQ 4 sorts the headers of any message
        [(_, undelayed, _)] = shop.take(queue, 1)
    assert properties.raw == undelayed.raw
    assert body == b"\x00\xff"


def test_a_header_that_fills_its_frame_is_rejected_and_blocks_nothing(shop):
    """x-delay needs more bytes on delivery than before."""
    room = 131072 - 8 - 12 - 2 - 4 - 1
    filling = room - len(table(x_delay=value("b", "b", 9), a=text(b""))) + 4
    raw = headers_only(x_delay=value("b", "b", 9), a=text(b"#" * filling)).written
    assert len(raw) == 131072 - 8 - 12
    body = b"fills its frame"
    shop.send("any.key", body, properties=Raw(raw))
    # There is no room for a reason either: it is the broker that moved it.
    assert rejected(shop, body).headers["x-death"][0]["reason"] == "rejected"
    queue = shop.queue()
    shop.send(queue, b"next", x_delay=1)
    assert shop.take(queue, 1)
