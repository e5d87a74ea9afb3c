"""Many header values cost a consumer no time, and the properties that it uses are still parsed."""

import struct

import pika
import pytest
from delayed_support import raw_headers, short, table, text

from scheduler.rabbit.dead_letter import read
from scheduler.rabbit.delivery_parser import decoded
from scheduler.rabbit.heavy_headers import MAX_SEARCHED
from scheduler.rabbit.message_forwarding import MAX_HEADERS, dead_letter
from scheduler.views.dead_letters import dead_view
from tests.call_count import CallCount

FRAME_MAX = 131_072
SIZE = 120_000
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHERS = {"message_id": "m", "correlation_id": "c", "reply_to": "r", "user_id": "acme", "type": "t", "priority": 3,
          "delivery_mode": 2, "timestamp": 5, "content_type": "application/json"}


def array(values):
    return b"A" + struct.pack(">I", len(values)) + values


HEAVY = {
    "short headers": {str(number): b"V" for number in range(SIZE // 7)},
    "array": {"a": array(b"V" * SIZE)},
    "array of tables": {"a": array(b"F\0\0\0\0" * (SIZE // 5))},
    "arrays": {str(number): array(b"V" * 1000) for number in range(SIZE // 1010)},
}


def properties(headers):
    """Return properties with these headers; the first one is a traceparent."""
    encoded = b"".join(pika.BasicProperties(**OTHERS).encode())
    [flags] = struct.unpack_from(">H", encoded)
    content_type = 3 + encoded[2]
    written = table(traceparent=text(TRACE.encode()), **headers)
    return struct.pack(">H", flags | 1 << 13) + encoded[2:content_type] + written + encoded[content_type:]


@pytest.mark.parametrize("name", HEAVY)
def test_many_header_values_are_not_read(name):
    raw = properties(HEAVY[name])
    with CallCount() as calls:
        known = decoded(raw)
    assert calls.count < 10 * MAX_SEARCHED
    assert known.headers == {"traceparent": TRACE}
    assert {part: getattr(known, part) for part in OTHERS} == OTHERS


@pytest.mark.parametrize("headers", [{}, {"own": text(b"x" * 1000)}, {"list": array(b"V" * 500)}])
def test_few_header_values_are_read_as_before(headers):
    raw = properties(headers)
    expected = pika.BasicProperties()
    expected.decode(raw)
    assert vars(decoded(raw)) == vars(expected)


@pytest.mark.parametrize("name", HEAVY)
def test_many_header_values_are_cheap_to_reject_and_show(name):
    raw = properties(HEAVY[name] | {"x-rejected-reason": text(b"forged")})
    with CallCount() as calls:
        sent = dead_letter("request", raw, b"{}", {"x-rejected-reason": "why"}, FRAME_MAX)
    assert calls.count < 20 * MAX_HEADERS
    with CallCount() as calls:
        letter = read(b"request", sent.properties, b"{}", 1)
    assert calls.count < 100 * MAX_HEADERS
    with CallCount() as calls:
        dead_view(letter).model_dump_json()
    assert calls.count < 100 * MAX_HEADERS
    assert (letter.reason, letter.properties["message_id"]) == ("why", "m")
    assert ("x-dropped-headers" in letter.headers) == (len(HEAVY[name]) >= MAX_HEADERS)
    own = {"traceparent", *HEAVY[name]} & raw_headers(sent.properties).keys()
    assert len(own) == min(MAX_HEADERS, 1 + len(HEAVY[name]))


def test_the_brokers_own_death_is_read_behind_many_values():
    death = array(b"F" + table(queue=text(b"scheduler_inbox"), reason=text(b"expired"), exchange=text(b"x")))
    raw = properties({"a": array(b"V" * SIZE), "x-death": death, "x-rejected-reason": text(b"forged")})
    letter = read(b"request", raw, b"{}", 1)
    assert (letter.reason, letter.exchange) == ("expired in scheduler_inbox", "schedule.commands")
    assert short(b"x-death") in raw
