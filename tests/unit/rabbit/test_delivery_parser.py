"""Deliveries are read from bytes as pika itself would read them, however the bytes come in pieces."""

import struct

import pika
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pika import frame, spec

from scheduler.rabbit.delivery_parser import MORE, NOT_OURS, DeliveryParser

CHANNEL, CONSUMER, FRAME_MAX = 3, "ctag3.abc", 4096

words = st.text(max_size=20)
properties = st.builds(
    pika.BasicProperties,
    content_type=st.none() | words, delivery_mode=st.none() | st.sampled_from([1, 2]),
    correlation_id=st.none() | words, reply_to=st.none() | words, type=st.none() | words,
    headers=st.none() | st.dictionaries(words, words | st.integers(-5, 5), max_size=3),
)


def delivery(
    tag=7, *, redelivered=False, key="request", body=b"{}", properties=None, consumer=CONSUMER, channel=CHANNEL
):
    method = spec.Basic.Deliver(consumer, tag, redelivered, "schedule.commands", key)
    header = frame.Header(channel, len(body), properties or pika.BasicProperties())
    room = FRAME_MAX - 8
    pieces = [body[at : at + room] for at in range(0, len(body), room)]
    frames = [frame.Method(channel, method), header, *(frame.Body(channel, piece) for piece in pieces)]
    return b"".join(each.marshal() for each in frames)


class Reader:
    def __init__(self):
        self.found = []
        self.deliveries = DeliveryParser(CHANNEL, CONSUMER, FRAME_MAX, self.found.extend)

    def read(self, data, at=0):
        end = self.deliveries.read(data, at)
        self.deliveries.flush()
        return end


@given(st.lists(
    st.tuples(st.integers(1, 2**63), st.booleans(), st.text(max_size=30), properties, st.binary(max_size=200)),
    max_size=5,
))
@settings(deadline=None, derandomize=True)
def test_reads_what_pika_wrote(messages):
    data = b"".join(
        delivery(tag, redelivered=again, key=key, body=body, properties=given)
        for tag, again, key, given, body in messages
    )
    reader, at = Reader(), 0
    while at < len(data):
        at = reader.read(data, at)
    assert at == len(data)
    assert [
        (each.tag, each.redelivered, each.routing_key, each.properties, each.body) for each in reader.found
    ] == messages
    assert sum(each.size for each in reader.found) == len(data)


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 300])
def test_waits_for_the_rest_at_any_byte_and_hands_over_nothing_before(body):
    data = delivery(body=body)
    reader = Reader()
    seen = [reader.read(data[:size]) for size in range(len(data))]
    # Too few bytes to identify the consumer are left to pika, and there is no complete frame for it either.
    unclear = 7 + 4 + 1 + len(CONSUMER)
    assert set(seen[:unclear]) == {NOT_OURS}
    assert set(seen[unclear:]) == {MORE}
    assert reader.found == []
    assert reader.read(data) == len(data)


@pytest.mark.parametrize("data", [
    delivery(consumer="other"),
    delivery(channel=4),
    delivery(body=b"x" * (FRAME_MAX + 1)),
    frame.Heartbeat().marshal(),
    frame.Method(CHANNEL, spec.Basic.Ack(9)).marshal(),
    frame.Method(CHANNEL, spec.Basic.Cancel(CONSUMER)).marshal(),
    delivery()[:-1] + b"\x00",
], ids=["another consumer", "another channel", "a large body", "heartbeat", "ack", "cancel", "a broken end"])
def test_leaves_the_rest_to_pika(data):
    reader = Reader()
    assert reader.read(data) == NOT_OURS
    assert reader.found == []


def test_a_routing_key_that_is_not_text_is_left_to_pika():
    data = delivery(key="request").replace(b"request", b"\xff" * 7)
    assert Reader().read(data) == NOT_OURS


def test_a_body_split_otherwise_than_usual_is_left_to_pika():
    whole = delivery(body=b"abcdef")
    head = whole[: whole.index(struct.pack(">BHI", spec.FRAME_BODY, CHANNEL, 6))]
    split = head + frame.Body(CHANNEL, b"abc").marshal() + frame.Body(CHANNEL, b"def").marshal()
    assert Reader().read(split) == NOT_OURS
