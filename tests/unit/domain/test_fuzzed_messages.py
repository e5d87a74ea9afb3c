"""Every queued message is a command or a rejection with reasons, at a cost proportional to its size."""

import json
import logging
import struct
from uuid import uuid4

import pika
import pytest
from commands import EXAMPLES
from from_schema import ANYTHING, broken, valid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_rejection_cost import NOW

from scheduler.commands.apply_delayed import parse_delayed_delivery
from scheduler.commands.command_replies import reply_to
from scheduler.commands.parse_deliveries import parse_command_delivery, parse_result_delivery
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming, define
from scheduler.domain.message_parser import id_in_body
from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS, ScheduleRequest
from scheduler.rabbit.delivery_parser import Delivery, decoded
from tests.call_count import CallCount

COMMANDS = {key: model.__name__ for key, model in COMMAND_MODELS.items()}
RESULTS = {key: model.__name__ for key, model in RESULT_MODELS.items()}
MOST = 262_144
MAX_CALLS = 50_000  # about 10 ms
HASTE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large,
         HealthCheck.function_scoped_fixture]
short = settings(max_examples=60, deadline=None, suppress_health_check=HASTE, derandomize=True)
long = settings(max_examples=EXAMPLES or 1000, deadline=None, suppress_health_check=HASTE)

TEXTS = st.text(max_size=30).filter(str.isprintable)
PROPERTIES = st.fixed_dictionaries({}, optional={
    "type": TEXTS | st.sampled_from(["ScheduleRequest", "request"]), "correlation_id": TEXTS, "user_id": TEXTS,
    "reply_to": TEXTS, "headers": st.dictionaries(
        TEXTS | st.sampled_from(["traceparent", "x-delivery-count"]),
        st.none() | st.booleans() | st.integers(-5, 30) | TEXTS, max_size=3,
    ),
})


def as_bytes(message: object, cut: int) -> bytes:
    """Return a message as a host may have written it: whole, or cut off."""
    body = json.dumps(message).encode("utf-8", "surrogatepass")
    return body[:cut] if cut < len(body) else body


def delivery(key: str, body: bytes, properties: dict) -> Delivery:
    raw = b"".join(pika.BasicProperties(**properties).encode())
    return Delivery(1, key, decoded(raw), body, False, len(body) + len(raw), raw)


def read(key: str, body: bytes, properties: dict) -> object:
    """Parse a message like a consumer, up to the stored job or the reply."""
    came = delivery(key, body, properties)
    reader = parse_result_delivery if key in RESULTS else parse_command_delivery
    found = reader(came, max_payload_bytes=MOST)
    if isinstance(found, Incoming) and isinstance(found.command, ScheduleRequest):
        try:
            define(found, NOW)
        except Rejected as rejected:
            found = rejected
    if isinstance(found, Rejected):
        reply_to(found, id_in_body(body)).model_dump_json()
    return found


def judge(key: str, body: bytes, properties: dict, caplog: pytest.LogCaptureFixture) -> None:
    parsed = read(key, body, properties)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text
    if not isinstance(parsed, Rejected):
        return
    assert parsed.problems
    assert not any("internal error" in problem.problem for problem in parsed.problems)
    names = [problem.field for problem in parsed.problems]
    assert all(isinstance(name, str) and name.isascii() for name in names), parsed.problems
    with CallCount(builtins=True) as calls:
        read(key, body, properties)
    assert calls.count < MAX_CALLS + len(body), body


# An instant that does not exist, and such.
UNSAID = ("issued_at", "started_at", "finished_at", "retry_in", "body", "closed", "open", "valid_until")
WHOLE = st.just(10**9)
CUT = st.one_of(WHOLE, WHOLE, st.integers(0, 200))


@pytest.mark.parametrize("key", COMMANDS | RESULTS)
@short
@given(data=st.data())
def test_a_message_is_read_or_rejected(key, data, caplog):
    message = data.draw(broken((COMMANDS | RESULTS)[key]))
    judge(key, as_bytes(message, data.draw(CUT)), data.draw(PROPERTIES), caplog)


@pytest.mark.deep
@pytest.mark.parametrize("key", COMMANDS | RESULTS)
@long
@given(data=st.data())
def test_a_message_is_read_or_rejected_for_long(key, data, caplog):
    message = data.draw(broken((COMMANDS | RESULTS)[key]))
    judge(key, as_bytes(message, data.draw(CUT)), data.draw(PROPERTIES), caplog)


@pytest.mark.parametrize("key", sorted((COMMANDS | RESULTS).keys() - {"request"}))
@short
@given(data=st.data())
def test_what_the_schema_allows_is_taken(key, data, caplog):
    parsed = read(key, as_bytes(data.draw(valid((COMMANDS | RESULTS)[key])), 10**9), {})
    assert not caplog.records
    if isinstance(parsed, Rejected):  # for rules that a schema cannot express
        problems = parsed.problems
        assert all(problem.field in UNSAID or "\\u0000" in problem.problem for problem in problems), problems


@short
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=40).map(lambda text: b'{"id":"' + text + b'"}'),
                 ANYTHING.map(lambda value: as_bytes(value, 10**9))),
       st.sampled_from([*COMMANDS, *RESULTS, "x", ""]))
def test_what_is_no_message_at_all_is_rejected(body, key):
    parsed = read(key, body, {})
    assert isinstance(parsed, Rejected) or json.loads(body)


ENTRIES = st.tuples(
    st.one_of(st.sampled_from([b"x-delay", b"x-deliver-at", b"x-opt-delivery-time", b"x-opt-delivery-delay"]),
              st.binary(max_size=5)),
    st.sampled_from(b"bBsUuIilLfdtDTVSxAFzQ"), st.binary(max_size=30),
)


def table(entries: list[tuple[bytes, int, bytes]]) -> bytes:
    sized = frozenset(b"SxAF")
    written = b"".join(bytes((len(name),)) + name + bytes((kind,)) + (
        struct.pack(">I", len(value)) + value if kind in sized else value) for name, kind, value in entries)
    return struct.pack(">HI", 1 << 13, len(written)) + written


@settings(short, max_examples=400)
@given(st.lists(ENTRIES, max_size=4).map(table) | st.binary(max_size=60), st.booleans())
def test_a_delayed_message_is_read_or_rejected(raw, redelivered):
    came = Delivery(1, "a", pika.BasicProperties(), str(uuid4()).encode(), redelivered, len(raw), raw)
    parsed = parse_delayed_delivery(came, exchange="x", frame_max=131_072)
    if isinstance(parsed, Rejected):
        assert not any("internal error" in problem.problem for problem in parsed.problems)
