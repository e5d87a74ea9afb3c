"""`scheduler delayed …` as an operator runs it, against a real broker and a real database."""

import json
import os
import subprocess
import sys
from uuid import uuid4

import pika
import pytest
from delayed_support import stored, waiting
from support import DEADLINE, until

HOUR = 3_600_000


@pytest.fixture
def run(sidecar):
    def _run(*arguments, code=0, **env):
        done = subprocess.run(
            [sys.executable, "-m", "scheduler", "delayed", *map(str, arguments)], capture_output=True, text=True,
            check=False, timeout=DEADLINE, stdin=subprocess.DEVNULL, env=os.environ | sidecar.env | env,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return _run


def test_list_show_and_cancel(shop, sidecar, run):
    assert "No matching delayed messages" in run("list")
    named, key = str(uuid4()), f"key.{uuid4().hex}"
    properties = pika.BasicProperties(message_id=named, headers={"x-delay": HOUR, "a": 1}, content_type="t/x")
    shop.send(key, b'{"invoice": 42}', properties=properties)
    shop.send("other\n", b"\xff\x00", x_delay=2 * HOUR)
    first, second = stored(sidecar, 2)
    text = run("list")
    assert text.index(named) < text.index("other")
    assert str(second["id"]) in text
    [found] = json.loads(run("list", "--json", "--routing-key", key))
    assert (found["id"], found["message_id"], found["exchange"], found["size"]) == (
        named, named, "schedule.delayed", 15)
    assert found["due_at"] == first["due_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    [first_of_two] = json.loads(run("list", "--json", "--since", found["due_at"], "--limit", 1))
    assert first_of_two["id"] == named
    shown = json.loads(run("show", named, "--json"))
    assert (shown["body"], shown["body_encoding"]) == ({"invoice": 42}, "json")
    assert shown["headers"] == {"x-delay": -HOUR, "a": 1}
    assert shown["properties"]["content_type"] == "t/x"
    assert "/wA=" in run("show", second["id"])
    assert "pass --yes" in run("cancel", named, code=1)
    assert "cancelled" in run("cancel", named, "--yes")
    assert json.loads(run("cancel", second["id"], "--yes", "--json"))["id"] == str(second["id"])
    assert "is pending; it may have been delivered" in run("cancel", named, "--yes", code=1)
    assert "is pending; it may have been delivered" in run("show", second["id"], code=1)
    assert waiting(sidecar) == []
    # The cancel leaves a tombstone, as the command does.
    shop.send(queue := shop.queue(), b"late", properties=pika.BasicProperties(
        message_id=named, headers={"x-delay": 1}))
    shop.send(queue, b"next", x_delay=1)
    assert shop.take(queue, 1)[0][2] == b"next"
    assert "invalid UUID" in run("show", "x", code=2)
    assert "Postgres" in run("list", code=69, DATABASE_URL="postgresql://127.0.0.1:1/x")


def definitions(**more):
    """What `rabbitmqctl export_definitions` writes, shortened."""
    def exchange(name, kind, delayed_type=None, vhost="/", **arguments):
        arguments |= {"x-delayed-type": delayed_type} if delayed_type else {}
        return {"name": name, "vhost": vhost, "type": kind, "durable": True, "auto_delete": False,
                "internal": False, "arguments": arguments}

    def binding(source, destination, key, kind="queue", vhost="/", **arguments):
        return {"source": source, "vhost": vhost, "destination": destination, "destination_type": kind,
                "routing_key": key, "arguments": arguments}

    return {"rabbit_version": "3.13.7", "exchanges": [
        exchange("shop.orders", "x-delayed-message", "topic"),
        exchange("shop.mails", "x-delayed-message", "direct", **{"alternate-exchange": "lost"}),
        exchange("shop.odd", "x-delayed-message", "x-consistent-hash"), exchange("plain", "topic"),
    ], "bindings": [
        binding("shop.orders", "billing", "order.#"), binding("shop.orders", "audit", "order.*.done"),
        binding("shop.orders", "shop.mails", "mail", "exchange"), binding("shop.mails", "sending", "mail"),
        binding("plain", "shop.orders", "from.plain", "exchange"), binding("plain", "billing", "other"),
    ], "queues": [{"name": "billing", "vhost": "/"}], **more}


def test_migrate_prints_and_applies_the_replacements(shop, sidecar, run, tmp_path):
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(definitions()))
    text = run("migrate", path, code=1)
    for line in (
        "exchange  shop.orders (topic)", "exchange  shop.orders.delay (headers, alternate exchange shop.orders)",
        "queue     scheduler_delay_shop.orders", "binding   shop.orders → queue billing by 'order.#'",
        "binding   shop.orders → exchange shop.mails.delay by 'mail'",
        "binding   plain → exchange shop.orders.delay by 'from.plain'",
        "publisher publishes to shop.orders.delay instead of shop.orders",
        "setting   SCHEDULER_DELAY_EXCHANGES=shop.mails:direct,shop.orders:topic",
        "problem   shop.odd: x-delayed-type 'x-consistent-hash' is not supported",
    ):
        assert line in text
    assert "plain → queue billing" not in text
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        shop.connection.channel().exchange_declare("shop.orders", passive=True)

    told = run("migrate", path, "--apply", code=1)
    assert "could not be declared" in told
    assert "no queue 'billing'" in told
    for queue in ("billing", "audit", "sending"):
        shop.channel.queue_declare(queue, durable=True)
    shop.channel.exchange_declare("plain", "topic", durable=True)
    assert "declared; set SCHEDULER_DELAY_EXCHANGES" in run("migrate", path, "--apply", code=1)
    pairs = {"SCHEDULER_DELAY_EXCHANGES": "shop.mails:direct,shop.orders:topic"}
    assert sidecar.processes[1].stop() == 0  # it has other exits, and would postpone messages for these
    for role in ("producer", "consumer"):
        sidecar.start(role, **pairs).ready()
    shop.send("order.placed", b"1", "shop.orders.delay", x_delay=1)
    shop.send("from.plain", b"2", "plain", x_delay=1)
    shop.send("mail", b"3", "shop.orders.delay", x_delay=1)
    assert shop.get("billing")[2] == b"1"
    assert shop.get("sending")[2] == b"3"
    # The message from `plain` has no queue at shop.orders: it is stored.
    until(lambda: any(row["retries"] for row in waiting(sidecar)), "the one without a queue")


def test_migrate_with_a_suffix_and_with_invalid_definitions(run, tmp_path):
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(definitions()))
    text = run("migrate", path, "--suffix", ".v2", code=1)
    assert "publisher publishes to shop.orders.v2.delay instead of shop.orders" in text
    assert "binding   shop.orders.v2 → exchange shop.mails.v2.delay by 'mail'" in text
    plan, _ = json.JSONDecoder().raw_decode(run("migrate", path, "--json", code=1))
    assert (plan["setting"], plan["declared"]) == ("shop.mails:direct,shop.orders:topic", False)
    assert [(pair["old"], pair["entry"]) for pair in plan["pairs"]] == [
        ("shop.mails", "shop.mails.delay"), ("shop.orders", "shop.orders.delay")]
    assert "shop.odd" in plan["problems"][0]
    path.write_text(json.dumps({"exchanges": []}))
    assert "No exchange has the plugin's type" in run("migrate", path)
    two = definitions()
    two["exchanges"][0]["vhost"] = "other"
    path.write_text(json.dumps(two))
    assert "choose one with --vhost" in run("migrate", path, code=1)
    assert "shop.orders.delay" in run("migrate", path, "--vhost", "other")
    for broken in ("{", "[]", "{}", "\xff"):
        path.write_bytes(broken.encode("latin-1"))
        assert str(path) in run("migrate", path, code=1)
    assert "definitions" in run("migrate", tmp_path / "definitions.none", code=1)
