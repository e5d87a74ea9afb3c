"""A rejection costs no more than its size deserves: each is compared with a valid command of the same size."""

import json
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from scheduler.commands.apply_delayed import parse_delayed_delivery
from scheduler.commands.command_replies import reply_to
from scheduler.domain.errors import MAX_PROBLEMS, Rejected
from scheduler.domain.jobs.definition import define
from scheduler.domain.message_parser import id_in_body, parse_command, parse_result, parse_worker
from scheduler.domain.recurrence.preview import preview
from scheduler.domain.strict_json import parse_object
from scheduler.rabbit.delivery_parser import NOTHING, Delivery

ID = str(uuid4())
NOW = datetime(2026, 11, 18, tzinfo=UTC)
SIZE = 100_000
LEAST = 10_000  # bytes: a smaller input is compared with a valid command of this size
MAX_RATIO = 20  # about 5 is usual; the defects that these tests are for had 50 to 500
TIMES = 3

Work = Callable[[bytes], object]


def request(**fields: object) -> bytes:
    return json.dumps({"id": ID, "job_type": "a"} | fields).encode()


def webhook(**fields: object) -> bytes:
    return request(target={"webhook": {"url": "http://example.org/"} | fields})


def with_text(text: bytes) -> bytes:
    return b'{"id":"%s","job_type":"a",%s}' % (ID.encode(), text)


def many(text: str, size: int) -> dict[str, object]:
    return {text.format(index): index for index in range(SIZE // size)}


def command(body: bytes, key: str = "request") -> object:
    incoming = parse_command(key, body, max_payload_bytes=262_144)
    return define(incoming, NOW) if key == "request" else incoming


def cancel(body: bytes) -> object:
    return command(body, "cancel")


def result(body: bytes) -> object:
    return parse_result("result", body)


def previewed(body: bytes) -> object:
    fields, _ = parse_object(body, exact="")
    return preview(fields, NOW)


def delayed(table: bytes) -> object:
    raw = struct.pack(">HI", 1 << 13, len(table)) + table
    delivery = Delivery(1, "a", NOTHING, b"", False, len(raw), raw)
    read = parse_delayed_delivery(delivery, exchange="x", frame_max=131_072)
    if isinstance(read, Rejected):
        raise read
    return read


def nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    """Return many values nested in each other, separated by commas."""
    one = opening * depth + b"1" + closing * depth
    return b",".join([one] * (SIZE // (len(one) + 1)))


def header(name: bytes, text: bytes) -> bytes:
    return bytes((len(name),)) + name + b"S" + struct.pack(">I", len(text)) + text


SCHEDULES: dict[str, dict[str, object]] = {
    "rrule: one word": {"rrule": "x" * 4096},
    "rrule: empty parts": {"rrule": "FREQ=DAILY" + ";" * 4086},
    "rrule: unknown parts": {"rrule": "FREQ=DAILY" + ";X=1" * 1021},
    "rrule: weekdays": {"rrule": "FREQ=DAILY;BYDAY=" + "QQ," * 1359},
    "rrule: many rules": {"rrule": "\n".join(["FREQ=DAILY"] * 370)},
    "rrule: empty lines": {"rrule": "\n" * 4095 + "x"},
    "rrule: bad lines": {"rrule": "x!\n" * 1365},
    "rrule: bad dates": {"rrule": "RRULE:FREQ=DAILY\nEXDATE:" + "1," * 2000},
    "rrule: bad date lines": {"rrule": "RRULE:FREQ=DAILY\n" + "EXDATE:1\n" * 450},
    "rrule: parameters": {"rrule": "RRULE:FREQ=DAILY\nEXDATE" + ";A=1" * 1000 + ":1"},
    "rrule: quotes": {"rrule": "RRULE:FREQ=DAILY\nEXDATE;" + '"' * 4050},
    "rrule: like cron": {"rrule": "*" * 1000 + " " * 1000 + "x" + " " * 2000},
    "cron: commas": {"cron": "," * 990 + " * * * *"},
    "cron: bad items": {"cron": ",".join(["99"] * 320) + " * * * *"},
    "cron: blanks": {"cron": " " * 1000},
    "every: digits": {"every": "P" + "1" * 99},
    "timezone: unknown": {"timezone": "Europe/Nowhere", "cron": "* * * * *"},
    "timezone: long": {"timezone": "america/" * 12, "cron": "* * * * *"},
    "run_at: long": {"run_at": "2026-01-01T00:00:00." + "1" * SIZE},
}
INPUTS: dict[str, tuple[Work, bytes]] = {
    "unknown fields": (command, request(**many("job_typ{:06}", 19))),
    "unknown fields of a cancel": (cancel, request(**many("issued_a{:06}", 20))),
    "one long field": (command, request(**{"f" * SIZE: 1})),
    "unknown fields of a policy": (command, request(run=many("time_out{:06}", 20))),
    "unknown fields of a target": (command, request(target=many("webhoo{:06}", 18))),
    "unknown fields of a webhook": (command, webhook(**many("header{:06}", 18))),
    "headers that are numbers": (command, webhook(headers=many("h{:06}", 15))),
    "too many headers": (command, webhook(headers=dict.fromkeys(many("h{:06}", 15), "x"))),
    "a query of numbers": (command, webhook(query=many("h{:06}", 15))),
    "unknown placeholders": (command, webhook(query=dict.fromkeys(many("h{:06}", 20), "{{x}}"))),
    "braces": (command, webhook(body="{{" * (SIZE // 2))),
    "a long placeholder": (command, webhook(body="{{payload" + ".a" * (SIZE // 2) + ".}}")),
    "arguments that are numbers": (command, request(target={"command": {
        "name": "a", "arguments": list(range(SIZE // 7))}})),
    "backoff of strings": (command, request(run={"backoff": ["x"] * (SIZE // 5)})),
    "a URL of an international name": (command, webhook(url="http://" + "é." * 990)),
    "a long header": (command, webhook(headers={"a": "x" * SIZE + "\n"})),
    "arrays without an end": (command, b'{"a":' + b"[" * SIZE),
    **{f"arrays nested {depth} deep without an end": (
        command, with_text(b'"payload":{"a":[%s]' % nested(depth, b"[", b"]"))) for depth in (10, 100, 400, 950)},
    **{f"objects nested {depth} deep without an end": (
        command, with_text(b'"payload":{"a":[%s]' % nested(depth, b'{"a":', b"}"))) for depth in (10, 400)},
    "a repeated key behind nested arrays": (
        command, with_text(b'"payload":{"a":[%s,{"b":1,"b":1}]}' % nested(400, b"[", b"]"))),
    "nested arrays as an unknown field": (command, with_text(b'"x":[%s]' % nested(400, b"[", b"]"))),
    "a result nested 400 deep without an end": (result, b'{"output":[%s' % nested(400, b"[", b"]")),
    "brackets and a string of escaped quotes": (command, b"[" * 30_000 + b'"' + b'\\"' * (SIZE // 2)),
    "brackets and escaped quotes": (command, b"[" * 30_000 + b'\\"' * (SIZE // 2)),
    "brackets in strings": (command, b'{"a":[' + b'"[",' * (SIZE // 4)),
    "a repeated key": (command, b"{" + b'"a":1,' * (SIZE // 6) + b'"b":2}'),
    "NUL in many strings": (command, with_text(b'"payload":{"a":[%s]}' % b",".join([b'"\\u0000"'] * (SIZE // 9)))),
    "NUL deep down": (command, with_text(b'"payload":{"a":%s"\\u0000"%s}' % (b"[" * 900, b"]" * 900))),
    "half surrogates": (command, with_text(b'"payload":{"a":"%s"}' % (b"\\ud83d" * (SIZE // 6)))),
    "digits": (command, with_text(b'"payload":{"a":[%s]}' % b",".join([b"9" * 4300] * (SIZE // 4300)))),
    "no UTF-8": (command, b'{"a":"' + b"a" * SIZE + b'\xff"}'),
    "blanks": (command, b" " * SIZE),
    "no end of a string": (command, b'{"a":"' + b"a" * SIZE),
    "a long route": (command, request(route="a." * (SIZE // 2))),
    "a long tenant": (command, request(tenant="x" * SIZE)),
    "a long id": (command, request(id="a" * SIZE)),
    "a long instant": (command, request(issued_at="2026-01-01T00:00:00." + "1" * SIZE + "X")),
    "unknown fields of a result": (result, json.dumps(many("even_id{:06}", 19)).encode()),
    "NUL in a result": (result, b'{"output":[%s]}' % b",".join([b'"\\u0000"'] * (SIZE // 9))),
    "unknown fields of a worker": (parse_worker, json.dumps(many("hos{:06}", 15)).encode()),
    "a busy worker": (parse_worker, json.dumps({"busy": [{"a": 1, "b": 2, "c": 3}] * (SIZE // 26)}).encode()),
    "unknown fields of a preview": (previewed, json.dumps(many("rul{:06}", 15)).encode()),
    "x-delay of many digits": (delayed, header(b"x-delay", b"9" * SIZE)),
    "x-deliver-at of many digits": (delayed, header(b"x-deliver-at", b"2026-01-01T00:00:00." + b"9" * SIZE)),
    "x-deliver-at of many fractions": (delayed, header(b"x-deliver-at", b".1111111" * (SIZE // 8))),
    **{f"command {name}": (command, request(**fields)) for name, fields in SCHEDULES.items()},
    **{f"preview {name}": (previewed, json.dumps(fields).encode()) for name, fields in SCHEDULES.items()},
}


def rejected(work: Work, body: bytes) -> Rejected:
    """Reject an input as a consumer does, reply included."""
    try:
        work(body)
    except Rejected as error:
        reply_to(error, id_in_body(body)).model_dump_json()
        return error
    raise AssertionError("it was accepted")


def accepted(size: int) -> float:
    """Return the processor time of a valid command of this size."""
    body = request(run_at="2099-01-01T00:00:00Z", payload={f"k{index:06}": index for index in range(size // 17)})
    return seconds(lambda: command(body))


def seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of a few tries: others on the machine do not count."""
    spent = []
    for _ in range(TIMES):
        began = time.thread_time()
        work()
        spent.append(time.thread_time() - began)
    return min(spent)


def ratio(name: str) -> float:
    work, body = INPUTS[name]
    return seconds(lambda: rejected(work, body)) / accepted(max(len(body), LEAST))


@pytest.mark.parametrize("name", INPUTS)
def test_a_rejection_costs_no_more_than_its_size_deserves(name):
    assert ratio(name) < MAX_RATIO


@pytest.mark.parametrize("name", INPUTS)
def test_few_problems_are_reported(name):
    error = rejected(*INPUTS[name])
    assert len(error.problems) <= MAX_PROBLEMS + 1
    assert len(str(error)) < 20_000


def test_the_others_are_counted():
    error = rejected(command, request(**many("job_typ{:06}", 19)))
    problems = [problem.problem for problem in error.problems]
    assert sum("did you mean" in each for each in problems) == 3
    assert problems[-1] == f"and {SIZE // 19 - MAX_PROBLEMS:,} more"
    assert error.problems[-1].field == "body"


def test_a_misspelled_zone_is_still_recognised():
    for wrong, meant in (("Europe/Berln", "Europe/Berlin"), ("america/new york", "America/New_York"),
                         ("Asia/Calcuta", "Asia/Calcutta"), ("Amerca/Chicago", "America/Chicago"),
                         ("Pacific/Aukland", "Pacific/Auckland"), ("US/Estern", "US/Eastern")):
        error = rejected(command, request(cron="* * * * *", timezone=wrong))
        assert f"did you mean {meant}?" in error.problems[0].problem
