"""`scheduler health`, as a HEALTHCHECK runs it."""

import json
import os
import subprocess
import sys

from support import DEADLINE, until


def health(port, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_"))}
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", "health", *arguments], env=clean | {"METRICS_PORT": str(port), **env},
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_a_ready_process_is_healthy(sidecar):
    process = sidecar.up(consumers=0).processes[0]
    # It times out after five seconds, as a HEALTHCHECK must.
    until(lambda: health(process.port) == (0, {"ready": True, "missing": {}}), "that it is ready")
    live = {"http_proxy": "http://127.0.0.1:9"}  # which is not asked
    _, answer = until(lambda: (got := health(process.port, "--live", **live))[0] == 0 and got, "that it lives")
    assert answer["live"] is True


def test_an_unready_process_names_the_missing_dependency(sidecar):
    process = sidecar.start("producer", AMQP_URL="amqp://guest:guest@127.0.0.1:9/")
    until(lambda: "rabbitmq" in health(process.port)[1]["missing"], "what it misses")
    assert health(process.port)[0] == 1
    until(lambda: health(process.port, "--live")[0] == 0, "that it lives")


def test_no_process_is_not_healthy():
    code, answer = health(9, METRICS_HOST="127.0.0.1")
    assert code == 1
    assert answer["missing"]["process"]["problem"]


def test_a_taken_port_is_a_bad_setting(sidecar):
    first = sidecar.up(consumers=0).processes[0]
    second = sidecar.start("producer", METRICS_PORT=str(first.port))
    assert second.popen.wait(DEADLINE) == 78
    sidecar.processes.remove(second)
    second.ended()
    assert "METRICS_PORT" in second.raw[-1]
