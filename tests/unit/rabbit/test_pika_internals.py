"""One module uses pika's internals, and reports at start-up if one is missing."""

import ast
import re
import struct
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pika
import pytest
from pika import frame, spec
from pika.adapters.utils import io_services_utils
from pika.channel import Channel
from pika.connection import Connection

import scheduler
from scheduler.domain.errors import Misconfigured
from scheduler.rabbit import pika_internals
from scheduler.rabbit.delivery_parser import DeliveryParser, UnreadableProperties
from scheduler.rabbit.pika_internals import ReadingConnection, check, forget_cancelled

PACKAGE = Path(scheduler.__file__).parent
HOME = PACKAGE / "rabbit" / "pika_internals.py"
KNOWN = {"_cancelled", "_impl_class", "_MAX_RECV_BYTES", "_AsyncTransportBase"} | {
    name for name in (*pika_internals.METHODS, *pika_internals.ATTRIBUTES) if name.startswith("_")
}
CHANNEL, CONSUMER = 3, "ctag3.abc"


# --- the check


def test_this_pika_is_one_that_was_tried():
    check()


@pytest.mark.parametrize(("owner", "name"), [
    *((Connection, name) for name in pika_internals.METHODS),
    (io_services_utils._AsyncTransportBase, "_MAX_RECV_BYTES"),
    (io_services_utils, "_AsyncTransportBase"),
    *pika_internals.ENCODING,
])
def test_a_missing_name_is_named_with_the_version_and_what_to_install(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    with pytest.raises(Misconfigured) as caught:
        check()
    shown = "_MAX_RECV_BYTES" if name == "_AsyncTransportBase" else name
    assert f"{shown} is missing" in str(caught.value)
    assert f"pika {pika.__version__}" in str(caught.value)
    assert f"pip install '{pika_internals.TESTED}'" in str(caught.value)



@pytest.mark.parametrize(("owner", "name", "value", "problem"), [
    (Connection, "_process_frame", lambda _: None, "_process_frame has different parameters"),
    (Connection, "_on_data_available", lambda *_: None, "does not use _read_frame"),
    (Connection, "_output_marshaled_frames", lambda *_: None, "does not write to _transport"),
    (Connection, "_trim_frame_buffer", lambda self, _: setattr(self, "_frame_buffer", b""), "wrong after a read"),
    (Channel, "__init__", lambda *_: None, "Channel._cancelled is not a set"),
    (pika.BlockingConnection, "__init__", lambda _: None, "BlockingConnection has no parameter _impl_class"),
    (frame.Header, "marshal", lambda _: b"?", "does not use"),
    (pika.adapters.select_connection.SelectConnection, "__init__", lambda _: None, "TypeError"),
])
def test_a_name_that_means_something_else_is_noticed(monkeypatch, owner, name, value, problem):
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(Misconfigured, match=problem):
        check()


@pytest.mark.parametrize("name", pika_internals.ATTRIBUTES)
def test_an_attribute_that_is_gone_or_of_another_type_is_noticed(monkeypatch, name):
    made = pika_internals._Unconnected.__init__

    def changed(self):
        made(self)
        setattr(self, name, bytearray())  # as the _frame_buffer of pika 1.5 is

    monkeypatch.setattr(pika_internals._Unconnected, "__init__", changed)
    with pytest.raises(Misconfigured, match=f"{name} is no"):
        check()

    def gone(self):
        made(self)
        delattr(self, name)

    monkeypatch.setattr(pika_internals._Unconnected, "__init__", gone)
    with pytest.raises(Misconfigured, match=f"{name} is no"):
        check()


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_a_process_ends_at_once_with_the_operators_exit_code_and_no_traceback(role):
    """No server is needed for it: the check comes before the first attempt to connect."""
    lines = [
        "import sys, pika.connection",
        "del pika.connection.Connection._read_frame",
        "from scheduler.cli import main",
        f"sys.exit(main([{role!r}]))",
    ]
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 78, ended.stderr
    assert ended.stderr.startswith(f"scheduler: pika {pika.__version__} ")
    assert "SelectConnection._read_frame is missing" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_pip_installs_only_what_was_tried():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    assert pika_internals.TESTED in project["dependencies"]


# --- one file


def _private(name):
    return name.startswith("_") and not name.startswith("__")


def _from_pika(tree):
    """The names that a file has from pika, or from our own class of pika's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.asname or each.name).split(".")[0] for each in node.names
                        if each.name.split(".")[0] == "pika")
        elif isinstance(node, ast.ImportFrom) and node.module and (
            node.module.split(".")[0] == "pika" or node.module.endswith(".pika_internals")
        ):
            yield from (each.asname or each.name for each in node.names)


def _defined(tree):
    """The private names that a file gives to its own things."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def uses_of_private_names(source):
    """Return the uses of pika's internals in a file.

    Types are not known here, so it is by name: what is private, of something other than `self`, and neither the
    file's own nor a named tuple's; and all that is private in a class of pika's.
    """
    tree = ast.parse(source)
    pikas, own = set(_from_pika(tree)), set(_defined(tree)) - KNOWN | {"_replace"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            ours = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not ours and node.attr not in own:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and node.value in KNOWN:
            yield node.lineno, node.value  # getattr and its like
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pika":
            names = [*node.module.split("."), *(each.name for each in node.names)]
            yield from ((node.lineno, name) for name in names if _private(name))
        elif isinstance(node, ast.ClassDef) and any(
            isinstance(part, ast.Name) and part.id in pikas for base in node.bases for part in ast.walk(base)
        ):
            yield from _private_within(node)


def _private_within(class_):
    for node in ast.walk(class_):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
        if isinstance(name, str) and node is not class_ and _private(name):
            yield node.lineno, name


def test_no_other_file_uses_private_names_of_pika():
    found = {
        str(path.relative_to(PACKAGE)): uses
        for path in PACKAGE.rglob("*.py")
        if path != HOME and re.search(r"\bpika\b|rabbit", source := path.read_text())
        and (uses := list(uses_of_private_names(source)))
    }
    assert found == {}


def test_pika_internals_uses_every_listed_name():
    assert {name for _, name in uses_of_private_names(HOME.read_text())} >= KNOWN


@pytest.mark.parametrize("source", [
    "link._connection._output_marshaled_frames([])",
    "class Inbox:\n def f(self):\n  self._channel._cancelled.discard(1)\n def _cancelled(self): pass",
    "import pika\nclass A(pika.SelectConnection):\n def _on_data_available(self, data): pass",
    "import pika\nclass A(pika.SelectConnection):\n def f(self): self._anything()",
    "from scheduler.rabbit.pika_internals import ReadingConnection as R\nclass A(R):\n def _x(self): pass",
    "from pika._utils import x",
    "from pika.adapters.utils.io_services_utils import _AsyncTransportBase",
    "getattr(channel, '_cancelled')",
])
def test_private_uses_elsewhere_are_detected(source):
    assert list(uses_of_private_names(source))


# --- the connection


def test_a_consumer_that_is_being_cancelled_is_forgotten():
    channel = Channel.__new__(Channel)
    channel._cancelled = {"a", "b"}
    forget_cancelled(channel, "a")
    forget_cancelled(channel, "a")
    assert channel._cancelled == {"b"}


def unconnected(consumer=None):
    connection = ReadingConnection.__new__(ReadingConnection)  # no socket: only what reads its bytes
    connection._frame_buffer, connection.deliveries, connection.bytes_received = b"", consumer, 0
    return connection


def delivery(properties=None):
    method = spec.Basic.Deliver(CONSUMER, 7, False, "schedule.commands", "request")
    frames = (frame.Method(CHANNEL, method), frame.Header(CHANNEL, 2, properties or pika.BasicProperties()),
              frame.Body(CHANNEL, b"{}"))
    return [each.marshal() for each in frames]


def test_properties_that_pika_cannot_read_do_not_end_the_connection_with_or_without_a_consumer():
    """Right after a consumer began, its first delivery may come in the same piece as the broker's answer."""
    seconds = 1_700_000_000
    given = pika.BasicProperties(headers={"at": datetime.fromtimestamp(seconds, UTC)})
    data = b"".join(delivery(given)).replace(struct.pack(">Q", seconds), struct.pack(">Q", seconds * 1000))
    frames = []
    for consumer in (None, DeliveryParser(CHANNEL, "another", 4096, frames.append)):
        connection = unconnected(consumer)
        connection._process_frame = frames.append
        for at in range(len(data)):
            connection._on_data_available(data[at : at + 1])
        assert [type(each) for each in frames] == [frame.Method, frame.Header, frame.Body]
        assert isinstance(frames[1].properties, UnreadableProperties)
        frames.clear()


def test_deliveries_that_come_together_are_handed_over_at_once_and_before_what_comes_after_them():
    order = []
    connection = unconnected(DeliveryParser(CHANNEL, CONSUMER, 4096, lambda found: order.append(len(found))))
    connection._process_frame = lambda each: order.append(type(each))
    one = b"".join(delivery())
    connection._on_data_available(one * 3 + frame.Heartbeat().marshal() + one * 2 + one[:-1])
    connection._on_data_available(one[-1:])
    assert order == [3, frame.Heartbeat, 2, 1]


def test_a_header_frame_without_its_end_is_still_an_error():
    header = delivery()[1]
    with pytest.raises(pika.exceptions.InvalidFrameError):
        unconnected()._on_data_available(header[:-1] + b"x")
