"""A worker needs only RabbitMQ, and other processes know it from its heartbeats."""

import os
import subprocess
import sys

from support import DEADLINE, until


def test_a_worker_needs_no_database_and_is_listed_until_it_leaves(sidecar):
    sidecar.up()
    worker = sidecar.start("worker", DATABASE_URL="postgresql://nobody@127.0.0.1:1/nowhere").ready()
    assert worker.http("/livez")[0] == 200
    row = until(lambda: sidecar.sql("SELECT * FROM workers"), "the worker's row")[0]
    assert (row["pid"], row["in_flight"], row["busy"]) == (worker.popen.pid, 0, [])
    first = row["beat"]
    until(lambda: sidecar.sql("SELECT id FROM workers WHERE beat > %s", first), "another heartbeat")
    until(lambda: 'scheduler_replicas{role="worker"} 1.0' in sidecar.processes[1].http("/metrics")[1], "the gauge")
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", "top"], env=os.environ | sidecar.env, capture_output=True, text=True,
        timeout=DEADLINE, check=True,
    )
    name = f"{row['host']}:{row['pid']}"[:30]
    assert any(line.startswith(name) and "idle" in line for line in done.stdout.splitlines())

    def left():
        """A process that is frozen for seconds while it stops does not sign off, and is listed for some time."""
        last = sidecar.processes[-1]
        assert last.stop() == 0
        if last.orderly:
            return True
        sidecar.sql("DELETE FROM workers")
        sidecar.start("worker").ready()
        until(lambda: sidecar.sql("SELECT 1 FROM workers"), "another worker's row")
        return False

    until(left, "a stop in order")
    until(lambda: sidecar.sql("SELECT count(*) AS n FROM workers")[0]["n"] == 0, "the worker off the list")


def test_late_or_invalid_worker_messages_are_ignored(sidecar, host):
    sidecar.start("consumer").ready()
    report = {"id": "3f1d3c52-6a44-4a52-8a3b-2b9a8f6f5a11", "host": "a", "pid": 1, "version": "1", "in_flight": 0,
            "started_at": "2026-11-30T06:00:00Z", "offers": ["webhooks"], "beat": 2}
    host.publish("worker", report)
    host.publish("worker", report | {"beat": 1, "in_flight": 5})
    host.publish("worker", report | {"beat": 3, "pid": "seven"})
    host.publish("worker", report | {"id": "3f1d3c52-6a44-4a52-8a3b-2b9a8f6f5a12"})
    assert host.get("scheduler_dead")[0].routing_key == "worker"
    until(lambda: sidecar.sql("SELECT count(*) AS n FROM workers")[0]["n"] == 2, "both workers")
    [row] = sidecar.sql("SELECT * FROM workers WHERE id = %s", report["id"])
    assert (row["beat"], row["in_flight"]) == (2, 0)
