"""One event is one line for all message contents; no line contains a password."""

import json
import logging
import sys
import threading
import time

import pytest

from scheduler.ops import logs

NASTY = 'x"}\n{"level": "error", "event": "forged"}\r\n\u2028\x1b[31mred\x00'


@pytest.fixture
def lines(capsys):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook

    def read(style, act, threshold="debug"):
        logs.set_up(threshold, style, "test")
        act(logs.get_logger("test"))
        return capsys.readouterr().err.splitlines()

    yield read
    root.handlers[:] = before
    root.setLevel(level)
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(False)


def test_a_line_is_an_object_with_time_level_event_and_fields(lines):
    [line] = lines("json", lambda log: log.info("stored", job_id="7", correlation_id=None))
    body = json.loads(line)
    assert body.pop("time").endswith("Z")
    assert body == {
        "level": "info", "event": "stored", "process": "test", "job_id": "7", "correlation_id": None,
    }


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_content_forges_a_line(lines, style):
    [line] = lines(style, lambda log: log.warning(NASTY, problem=NASTY, nested={"a": [NASTY]}))
    assert line.isprintable()
    assert line.isascii()


@pytest.mark.parametrize("style", ["json", "text"])
def test_nor_does_a_traceback(lines, style):
    def act(log):
        try:
            raise ValueError(NASTY)
        except ValueError:
            log.exception("failed")

    printed = lines(style, act)
    assert all(line.isprintable() for line in printed)
    if style == "json":
        assert len(printed) == 1
        assert "forged" in json.loads(printed[0])["traceback"]
    else:
        assert [line for line in printed[1:] if not line.startswith("    | ")] == []


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.parametrize("text", [
    "amqp://user:hunter2@broker:5672/%2F",
    "postgresql://u:hunter2@a,b:5432/db?target_session_attrs=read-write",
    "host=db password=hunter2 user=u",
    "password = 'hunter2 with blanks'",
])
def test_passwords_are_hidden(lines, style, text):
    [line] = lines(style, lambda log: log.error(text, url=text))
    assert "hunter2" not in line


def test_lines_below_the_level_cost_nothing_and_are_not_there(lines):
    printed = lines("json", lambda log: log.debug("no"), threshold="info")
    assert printed == []
    assert not logs.get_logger("test").shows_debug


def test_uncaught_exceptions_are_logged(lines):
    def act(_):
        error = RuntimeError("boom at amqp://u:hunter2@h/")
        sys.excepthook(RuntimeError, error, None)

    [line] = lines("json", act)
    body = json.loads(line)
    assert body["level"] == "error"
    assert "boom" in body["traceback"]
    assert "hunter2" not in line


HOSTILE = {
    "schemes without an end": "://" + "a." * 1000,
    "many users and no password's end": "a://b:" * 1000,
    "many colons": "a://" + "b:" * 1000,
    "slashes": "://" * 1000,
    "many URLs": "amqp://user:secret@host/ " * 1000,
    "password and blanks": "://password" + " " * 1000 + "password=" + " " * 1000,
    "quotes": "://" + "password='" * 1000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hiding_passwords_costs_no_more_than_the_length_of_the_text(name):
    def spent(times):
        text = HOSTILE[name] * times
        took = []
        for _ in range(3):
            began = time.thread_time()
            logs.without_secrets(text)
            took.append(time.thread_time() - began)
        return min(took)

    # Sixteen times the text: sixteen times the work; it used to be 256 times.
    assert spent(32) < 64 * max(spent(2), 1e-6)


@pytest.mark.parametrize(("text", "hidden"), [
    ("amqp://user:secret@host/", "amqp://user:***@host/"),
    ("postgresql+x://:secret@host", "postgresql+x://:***@host"),
    ("a://b:c://d:secret@host", "a://b:***@host"),
    ("a://b:c d://e:secret@f", "a://b:c d://e:***@f"),
    ("a://b/c:d@e", "a://b/c:d@e"),
    ("two: a://b:s@c, d://e:s@f", "two: a://b:***@c, d://e:***@f"),
    ("a://b:no-end", "a://b:no-end"),
    ("a://b:s@c@d", "a://b:***@c@d"),
    ("://", "://"),
])
def test_passwords_in_urls_are_hidden(text, hidden):
    assert logs.without_secrets(text) == hidden
