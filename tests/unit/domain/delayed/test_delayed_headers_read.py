"""Delay headers of every AMQP kind, and properties as bytes: nothing else is touched, nothing hostile raises."""

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pika
import pytest
from commands import EXAMPLES
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.commands.apply_delayed import parse_delayed_delivery
from scheduler.domain.delayed.delay import (
    DELAY_HEADERS,
    MAX_DELAY,
    Delay,
    Timestamp,
    due_at,
    elapsed_delay,
    parse_delay,
)
from scheduler.domain.delayed.message import DelayedMessage, ReceivedMessage
from scheduler.domain.errors import Rejected
from scheduler.rabbit import content_header
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.message_forwarding import dead_letter, forwarded_message
from scheduler.views.delayed_messages import printable

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
CENTURY_MS = MAX_DELAY // timedelta(milliseconds=1)
FRAME = 131072
integers = {"b": 8, "s": 16, "I": 32, "l": 64}
unsigned = {"B": ("B", 8), "u": ("H", 16), "i": ("I", 32)}
codes = {"b": "b", "s": "h", "I": "i", "l": "q"}


def often(count):
    """Run a property with the same examples each time; with thousands of them in the deep run."""
    def decorated(test):
        test = settings(max_examples=EXAMPLES or count, derandomize=not EXAMPLES, database=None)(test)
        return pytest.mark.deep(test) if EXAMPLES else test

    return decorated


def short(value):
    return bytes((len(value),)) + value


def text(value):
    return b"S" + struct.pack(">I", len(value)) + value


@st.composite
def numbers(draw):
    """Draw an encoded AMQP number and its value."""
    kind = draw(st.sampled_from([*integers, *unsigned, "f", "d", "D", "S"]))
    if kind in integers:
        bits = integers[kind]
        found = draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        return kind.encode() + struct.pack(f">{codes[kind]}", found), found
    if kind in unsigned:
        code, bits = unsigned[kind]
        found = draw(st.integers(0, 2**bits - 1))
        return kind.encode() + struct.pack(f">{code}", found), found
    if kind == "S":
        found = draw(st.integers(-(10**20), 10**20))
        return text(b"%d" % found), found
    if kind == "D":
        scale, found = draw(st.integers(0, 255)), draw(st.integers(-(2**31), 2**31 - 1))
        return b"D" + struct.pack(">Bi", scale, found), int(Decimal(found) / Decimal(10) ** scale)
    width = {"f": 32, "d": 64}[kind]
    found = draw(st.floats(width=width, allow_nan=False, allow_infinity=False))
    return kind.encode() + struct.pack(f">{kind}", found), int(found)


# Values of every other kind, as bytes.
others = st.one_of(
    st.binary(max_size=9).map(text), st.just(b"V"), st.booleans().map(lambda each: b"t" + bytes([each])),
    st.integers(0, 2**64 - 1).map(lambda each: b"T" + struct.pack(">Q", each)),
    st.binary(max_size=9).map(lambda each: b"x" + struct.pack(">I", len(each)) + each),
    st.binary(max_size=9).map(lambda each: b"A" + struct.pack(">I", len(each)) + each),
    st.binary(max_size=9).map(lambda each: b"F" + struct.pack(">I", len(each)) + each),
)
names = st.binary(min_size=1, max_size=8).filter(lambda name: name[:2] != b"x-")
SHORT = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type",
         "user_id", "app_id", "cluster_id")
ORDER = ("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
         "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id")


def encoded(headers, parts):
    table = b"".join(short(name) + value for name, value in headers)
    pieces = {"headers": struct.pack(">I", len(table)) + table} | parts
    flags = sum(1 << (15 - ORDER.index(name)) for name in pieces)
    return struct.pack(">H", flags) + b"".join(pieces[name] for name in ORDER if name in pieces)


properties = st.fixed_dictionaries({}, optional={
    **{name: st.binary(max_size=12).map(short) for name in SHORT},
    "delivery_mode": st.binary(min_size=1, max_size=1), "priority": st.binary(min_size=1, max_size=1),
    "timestamp": st.binary(min_size=8, max_size=8),
})


def arrived(raw, *, redelivered=False):
    delivery = Delivery(1, "key", pika.BasicProperties(), b"body", redelivered=redelivered, size=0, raw=raw)
    return parse_delayed_delivery(delivery, exchange="exit", frame_max=FRAME)


@given(numbers(), st.lists(st.tuples(names, others), max_size=3), st.lists(st.tuples(names, others), max_size=3),
       properties)
@often(200)
def test_only_the_delay_changes_whatever_lies_around_it(number, before, after, parts):
    written, says = number
    arrivals = arrived(encoded([*before, (b"x-delay", written), *after], parts))
    if says > CENTURY_MS:
        assert isinstance(arrivals, Rejected)
        return
    assert isinstance(arrivals, ReceivedMessage)
    out = b"l" + struct.pack(">q", -says) if says > 0 else written
    assert arrivals.properties == encoded([*before, (b"x-delay", out), *after], parts)
    assert due_at(arrivals.delay, NOW) == NOW + timedelta(milliseconds=max(says, 0))


@given(st.dictionaries(st.sampled_from(DELAY_HEADERS), numbers() | others.map(lambda each: (each, 0)), min_size=1),
       st.lists(st.tuples(names, others), max_size=3))
@often(200)
def test_what_comes_out_is_never_early_and_never_delayed_again(delays, others_):
    headers = [*others_, *((name.encode(), each[0]) for name, each in delays.items())]
    arrivals = arrived(encoded(headers, {}))
    if isinstance(arrivals, Rejected):
        assert {problem.field for problem in arrivals.problems} <= set(DELAY_HEADERS)
        return
    left = content_header.read(arrivals.properties).values({name.encode() for name in DELAY_HEADERS})
    assert set(left) <= {"x-delay"}
    assert all(elapsed_delay(each) is None for each in left.values())
    try:
        assert due_at(arrivals.delay, NOW) >= NOW
    except Rejected as error:
        assert error.problems[0].field in delays  # noqa: PT017 - either is right


@given(st.binary(max_size=300) | st.lists(st.tuples(names, others), max_size=4).flatmap(
    lambda headers: st.integers(0, 400).map(lambda cut: encoded(headers, {})[:cut])))
@example(b"")
@example(b"\x00")
@example(b"\x20\x00\xff\xff\xff\xff")
@example(b"\x20\x00\x00\x00\x00\x02\x01x")
@example(b"\x00\x01")
@often(300)
def test_bytes_of_any_kind_are_read_or_rejected(raw):
    assert isinstance(arrived(raw), ReceivedMessage | Rejected)
    assert isinstance(arrived(raw, redelivered=True), ReceivedMessage | Rejected)
    try:
        assert content_header.read(raw).encode() == raw
        printable(raw)
    except content_header.UnreadableContent:
        pass


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5) | st.binary(max_size=5)
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=5), nested, max_size=4), st.text(max_size=10))
@often(100)
def test_what_pika_writes_is_read_whole(headers, message_id):
    raw = b"".join(pika.BasicProperties(headers=headers, message_id=message_id).encode())
    parsed = content_header.read(raw)
    assert [entry.name.decode() for entry in parsed.entries] == list(headers)
    assert parsed.text("message_id") == message_id
    assert parsed.encode() == raw


def test_several_the_first_of_them_counts():
    headers = {"x-delay": 1, "x-opt-delivery-delay": 2, "x-opt-delivery-time": 3, "x-deliver-at": Timestamp(4)}
    said = []
    for name in DELAY_HEADERS:
        said.append(parse_delay(headers).header)
        del headers[name]
    assert said == list(DELAY_HEADERS)
    assert parse_delay(headers) == Delay()


def test_100_years_are_the_most():
    edge = Delay(instant=NOW + MAX_DELAY, header="x-deliver-at")
    assert due_at(edge, NOW) == NOW + MAX_DELAY
    with pytest.raises(Rejected, match="more than 100 years ahead"):
        due_at(edge, NOW - timedelta(microseconds=1))
    assert parse_delay({"x-delay": CENTURY_MS}).milliseconds == CENTURY_MS
    with pytest.raises(Rejected, match="more than 100 years ahead"):
        parse_delay({"x-delay": CENTURY_MS + 1})


def test_the_queues_own_mark_goes_when_it_was_delivered_again():
    headers = [(b"x-delivery-count", b"I\x00\x00\x00\x01"), (b"x-delay", b"B\x05")]
    again, first = arrived(encoded(headers, {}), redelivered=True), arrived(encoded(headers, {}))
    assert again.properties == encoded([(b"x-delay", b"l" + struct.pack(">q", -5))], {})
    assert b"x-delivery-count" in first.properties


def test_a_user_is_moved_where_there_is_room():
    raw = encoded([], {"user_id": short(b"them")})
    assert forwarded_message("e", b"k", raw, b"", user="them", frame_max=FRAME).properties == raw
    moved = forwarded_message("e", b"k", raw, b"", user="us", frame_max=FRAME).properties
    assert moved == encoded([(b"x-original-user-id", text(b"them"))], {})
    assert forwarded_message("e", b"k", raw, b"", user="us", frame_max=40).properties == encoded([], {})
    with pytest.raises(ValueError, match="bytes; frame_max is"):
        forwarded_message("e", b"k", encoded([(b"a", text(b"#" * 50))], {}), b"", user="us", frame_max=40)


def test_a_dead_letter_neither_expires_nor_is_refused():
    raw = encoded([(b"x-rejected-reason", text(b"forged"))], {"expiration": short(b"5"), "user_id": short(b"u")})
    dead = dead_letter("k", raw, b"", {"x-rejected-reason": "why", "x-attempts": 3})
    parsed = content_header.read(dead.properties)
    assert set(parsed.parts) == {"headers", "delivery_mode"}
    assert printable(dead.properties)[1] == {
        "x-rejected-reason": "why", "x-attempts": 3, "x-original-expiration": "5", "x-original-user-id": "u",
    }
    assert dead_letter("k", b"\xff", b"", {}) is None


def test_given_up_after_an_hour_without_a_queue():
    message = DelayedMessage(1, "e", b"", b"", b"", NOW, NOW, 3, NOW - timedelta(minutes=59))
    assert not message.is_exhausted(NOW)
    assert message.is_exhausted(NOW + timedelta(minutes=1))
    message.unroutable_at = None
    assert not message.is_exhausted(NOW + timedelta(days=1))
