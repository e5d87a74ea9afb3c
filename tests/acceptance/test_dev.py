"""`scheduler dev`: the newcomer's first minute."""

import os
import re
import signal
import socket
import subprocess
import sys

from support import DEADLINE, until

COMMAND = [sys.executable, "-m", "scheduler", "dev", "--for"]
CLEAN = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "AMQP_URL")} | {
    "LOG_LEVEL": "ERROR", "API_PORT": "0",  # the usual one may be taken by others in the moment after it was free
}


def ports(text):
    return [int(port) for port in re.findall(r"(?:RabbitMQ|Postgres) .*@127\.0\.0\.1:(\d+)/", text)]


def refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_dev_shows_samples_and_ends_with_a_summary():
    done = subprocess.run(
        [*COMMAND, "10"], capture_output=True, text=True, timeout=5 * DEADLINE, check=False, env=CLEAN
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"due  sample\.once +#1 +\d+\.\d ms late", done.stdout)
    assert re.search(r"weekdays at 09:00 in New York; the next is \w+day .* 09:00 E[SD]T", done.stdout)
    assert done.stdout.count("  as expected") == 7
    assert re.search(r"run  sample\.webhook +succeeded at attempt 3\n", done.stdout)
    assert re.search(r"run  sample\.crm-sync +dead +at attempt 2: .* 5\d\d ", done.stdout)
    # Expected failures are not reported as problems.
    assert not re.search(r"^! .*(webhook failed|run is dead)", done.stdout, re.MULTILINE)
    assert re.search(r"Console +http://127\.0\.0\.1:\d+/login/[\w-]+", done.stdout)
    assert "\x1b" not in done.stdout  # plain when piped
    assert all(refused(port) for port in ports(done.stdout))


def started():
    process = subprocess.Popen(
        [*COMMAND, "60"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN
    )
    seen = ""
    for line in process.stdout:
        seen += line
        if "requested  sample.cancelled" in line:
            break
    assert len(ports(seen)) == 2, seen
    return process, ports(seen)


def test_servers_are_cleaned_up_after_kill_and_ctrl_c():
    first, old = started()
    first.kill()
    first.communicate()
    second, new = started()
    until(lambda: all(refused(port) for port in old if port not in new), "the first servers are gone")
    assert not any(refused(port) for port in new)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=2 * DEADLINE)
    assert second.returncode == 0
    assert all(refused(port) for port in new)


def test_an_invalid_setting_is_reported_before_startup():
    done = subprocess.run(
        [*COMMAND, "5"], capture_output=True, text=True, timeout=2 * DEADLINE, check=False,
        env=CLEAN | {"SCHEDULER_BATCH_SIZE": "x"},
    )
    assert (done.returncode, "SCHEDULER_BATCH_SIZE" in done.stderr) == (78, True)
