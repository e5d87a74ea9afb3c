"""Work of a higher priority overtakes work that already waits in the queues of busy workers."""

import json
import sys
import threading

import pytest
from endpoints import answer, endpoint
from support import DEADLINE, until, utc

from scheduler.dev.servers.vhosts import name_of

LOW, MAX_BEFORE = 30, 10  # calls that may begin while the worker reads a delivery


@pytest.fixture
def gate():
    """An endpoint whose calls wait for a permit each."""
    permits = threading.Semaphore(0)

    def wait(connection, received):
        if permits.acquire(timeout=DEADLINE):
            answer(204)(connection, received)

    with endpoint() as server:
        server.permits, server.wait = permits, wait
        yield server
        permits.release(1000)


def waiting(host, queue):
    return host.channel.queue_declare(queue, passive=True).method.message_count


def requested(host, priority, **fields):
    return host.request(run_at=utc().isoformat(), priority=priority, run={"timeout": DEADLINE}, **fields)


def delivered(sidecar, job_ids):
    rows = sidecar.sql("SELECT job_id FROM runs WHERE job_id::text = ANY(%s)", list(job_ids))
    return len(rows) == len(set(job_ids))


def test_a_high_webhook_overtakes_low_ones_that_wait(sidecar, host, gate):
    sidecar.up()
    sidecar.start("worker", SCHEDULER_WEBHOOK_ALLOW="127.0.0.0/8", SCHEDULER_WORKER_CONCURRENCY="1").ready()
    low = {"webhook": {"url": gate.on("/low", gate.wait)}}
    jobs = [requested(host, "low", target=low) for _ in range(LOW)]
    gate.one("/low")
    until(lambda: delivered(sidecar, jobs), "all low webhooks at the worker")
    high = requested(host, "high", target={"webhook": {"url": gate.on("/high", gate.wait)}})
    until(lambda: delivered(sidecar, [high]) and waiting(host, "scheduler_webhooks.default.high") == 0,
          "the high webhook at the worker")
    for _ in range(MAX_BEFORE):
        seen = len(gate.received)
        gate.permits.release()
        until(lambda seen=seen: len(gate.received) > seen, "the next call")
    assert [event.target for event in gate.received].count("/high") == 1
    gate.permits.release(1000)
    until(lambda: len(gate.calls("/low")) >= LOW, "every low webhook: none starves")


def test_until_a_worker_has_declared_its_queues_work_of_any_priority_is_in_the_main_queue(sidecar, host):
    sidecar.up()
    priorities = set()
    for priority in ("high", "low", "high"):
        requested(host, priority, target={"webhook": {"url": "http://127.0.0.1:1/"}})
        _, properties, _ = host.get("scheduler_webhooks")
        priorities.add(properties.priority)
    assert priorities == {9, 1}
    assert host.channel.queue_declare("scheduler_webhooks", passive=True).method.message_count == 0
    assert {row["last_problem"] for row in sidecar.sql("SELECT last_problem FROM jobs")} == {None}


def commands(tmp_path, tenants):
    """Offer a command that appends its argument to a file and waits until the file `go` has a line for it."""
    program = f"""import pathlib, sys, time
folder = pathlib.Path({str(tmp_path)!r})
with open(folder / "began", "a") as file:
    file.write(sys.argv[1] + "\\n")
number = len((folder / "began").read_text().split())
deadline = time.monotonic() + {DEADLINE}
while (folder / "go").stat().st_size < number and time.monotonic() < deadline:
    time.sleep(0.02)
"""
    (tmp_path / "go").touch()
    path = tmp_path / "commands.toml"
    path.write_text(f"[note]\nrun = {json.dumps([sys.executable, '-c', program])}\narguments = true\n"
                    f"tenants = {json.dumps(tenants)}\n")
    return str(path)


@pytest.mark.parametrize("tenants", [["default"], ["*"]], ids=["one-tenant", "shared"])
def test_a_high_command_overtakes_low_ones_that_wait(stack, sidecar, host, tmp_path, tenants):
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    sidecar.up()
    sidecar.start("worker", "--only", "commands", SCHEDULER_COMMANDS_FILE=commands(tmp_path, tenants)).ready()
    listing = ("list_bindings", "-q", "-p", name_of(sidecar.env["AMQP_URL"]), "--no-table-headers", "routing_key")
    keys = {"command.note", "command.note.default.low", "command.note.default.high"}
    until(lambda: keys <= set(stack.rabbitmq.ctl(*listing).split()), "the worker's queues to be bound")

    def request(priority):
        return requested(host, priority, target={"command": {"name": "note", "arguments": [str(priority)]}})

    def began():
        return (tmp_path / "began").read_text().split() if (tmp_path / "began").exists() else []

    jobs = [request("low") for _ in range(5)]
    until(began, "the first command")
    jobs += [request(None) for _ in range(2)]
    until(lambda: delivered(sidecar, jobs), "waiting commands")
    high = request("high")
    until(lambda: delivered(sidecar, [high]), "the high command")
    if tenants == ["*"]:
        until(lambda: waiting(host, "scheduler_command_note.default.high") == 0, "the high command at the worker")
    for count in range(2, 9):
        with (tmp_path / "go").open("a") as file:
            file.write("x")
        until(lambda count=count: len(began()) >= count, f"{count} commands")
    with (tmp_path / "go").open("a") as file:
        file.write("x")
    if tenants == ["*"]:
        assert began().index("high") < 3  # the worker may have chosen before it read the delivery
    else:
        assert began() == ["low", "high", "None", "None", "low", "low", "low", "low"]
