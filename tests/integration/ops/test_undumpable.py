"""A command with the worker's user cannot read the worker's environment or memory."""

import json
import os
import shutil
import sys

import pytest
from endpoints import event, results
from pika.exceptions import UnroutableError
from support import Process, until

# Root's capabilities allow everything, so the worker drops them first.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
PROBE = """
import json, os, sys
told = {"capabilities": int(next(l for l in open("/proc/self/status") if l.startswith("CapEff")).split()[1], 16)}
for pid in (sys.argv[1], "self"):
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                told[f"{'worker' if pid != 'self' else pid} {name}"] = len(file.read(64)) if name != "mem" else 1
        except OSError as error:
            told[f"{'worker' if pid != 'self' else pid} {name}"] = type(error).__name__
print(json.dumps(told))
"""


def sent(host, asked):
    """Publish to the command's queue; return False while the worker has not bound it."""
    try:
        host.publish("command.probe", asked, exchange="schedule.work")
    except UnroutableError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_command_cannot_read_its_workers_environment_or_memory(amqp_url, host, tmp_path):
    if WITHOUT_CAPABILITIES and not shutil.which("setpriv"):
        pytest.skip("needs setpriv to run without root's capabilities")
    file = tmp_path / "commands.toml"
    file.write_text(f"[probe]\nrun = {json.dumps([sys.executable, '-c', PROBE])}\narguments = true\n")
    worker = Process("worker", {"AMQP_URL": amqp_url, "SCHEDULER_COMMANDS_FILE": str(file)},
                     command=[*WITHOUT_CAPABILITIES, sys.executable, "-m", "scheduler"]).ready()
    try:
        asked = event("http://127.0.0.1/") | {
            "target": {"command": {"name": "probe", "arguments": [str(worker.popen.pid)]}}}
        until(lambda: sent(host, asked), "the command's queue is bound")
        [told] = results(host, 1).values()
        assert told["status"] == "succeeded", told
        body = json.loads(told["output"]["stdout"])
        assert body.pop("capabilities") == 0
        refused = dict.fromkeys(("worker environ", "worker mem", "worker maps"), "PermissionError")
        assert refused.items() <= body.items()
        assert body["self environ"] == 64  # the probe itself works
        assert worker.http("/metrics")[0] == 200
        assert "process_open_fds" in worker.http("/metrics")[1]
    finally:
        worker.kill()
