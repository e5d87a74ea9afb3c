"""Draws docs/overview.png: the overview dashboard, from the answers of a real Prometheus to a real run.

`python -m bench.overview` starts private servers, one consumer and two producers, gives them two minutes of
work with a burst and a mishap in it, and draws every panel of grafana/dashboards/overview.json.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pika

from bench.panels import draw
from scheduler.dev.dashboards.__main__ import FOLDER
from scheduler.dev.prometheus import ROOT, Prometheus
from scheduler.dev.servers import start_stack
from scheduler.dev.servers.ports import free_ports
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology

SECONDS = 120
BURST_AT, BURST = 50, 1000
MISHAP_AT, MISHAP_SECONDS = 84, 1.0
MISTAKES = range(28, 36)


class Host:
    """A monolith: asks for reminders, takes them, and makes mistakes."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.basic_consume("mainapp_due", lambda *_: None, auto_ack=True)

    def send(self, key: str, body: object) -> None:
        properties = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        self._channel.basic_publish("schedule.commands", key, json.dumps(body).encode(), properties)

    def request(self, at: datetime, **fields: object) -> str:
        body = {"id": str(uuid4()), "job_type": "reminder", "run_at": at.isoformat(), **fields}
        self.send("request", body)
        return body["id"]

    def rest(self, seconds: float) -> None:
        """Take events for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._connection.process_data_events(left)  # returns after each event

    def bind(self, *, bound: bool) -> None:
        act = self._channel.queue_bind if bound else self._channel.queue_unbind
        act("mainapp_due", "schedule.events", "due")


def work(host: Host) -> None:
    """Two minutes in the life of a host."""
    dice = random.Random(7)
    start = datetime.now(UTC) + timedelta(seconds=3)
    for _ in range(BURST):
        host.request(start + timedelta(seconds=BURST_AT))
    for _ in range(30):
        host.request(start + timedelta(seconds=dice.uniform(0, 5)), every=5)
    host.rest(0.1)
    began = time.monotonic()
    for second in range(SECONDS):
        for _ in range(dice.randint(60, 90) + 50 * (second % 40 > 25)):
            host.request(start + timedelta(seconds=second + dice.uniform(0, 1)))
        for _ in range(dice.randint(2, 12)):
            host.send("cancel", {"id": host.request(start + timedelta(hours=1))})
        if second in MISTAKES:
            host.send("request", {"id": str(uuid4()), "job_type": "reminder", "rrule": "FREQ=DAYLY"})
        if second == MISHAP_AT:
            host.bind(bound=False)
            host.rest(MISHAP_SECONDS)
            host.bind(bound=True)
        host.rest(began + second + 1 - time.monotonic())


def process(stack, role: str, port: int) -> None:
    env = os.environ | {
        "DATABASE_URL": stack.database_url, "AMQP_URL": stack.amqp_url, "METRICS_HOST": "127.0.0.1",
        "METRICS_PORT": str(port), "LOG_LEVEL": "warning",
    }
    started = subprocess.Popen([sys.executable, "-m", "scheduler", role], env=env)
    stack.adopt(started.pid)
    stack.also_close(lambda: (started.send_signal(signal.SIGTERM), started.wait(10)))
    pause = threading.Event()
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except OSError:
            pause.wait(0.1)
    raise SystemExit(f"{role} is not ready")


def main() -> None:
    """Run, ask, draw."""
    broker_port, *ports = free_ports(4)
    plugin = ("prometheus.tcp.ip = 127.0.0.1", f"prometheus.tcp.port = {broker_port}")
    with ExitStack() as closing:
        stack = closing.enter_context(
            start_stack(purpose="overview", say=print, rabbitmq_plugins=("rabbitmq_prometheus",), rabbitmq_config=plugin)
        )
        migrate(stack.database_url)
        topology.declare(stack.amqp_url, queue_type="quorum", due_queue_type="default")
        for role, port in zip(("consumer", "producer", "producer"), ports, strict=True):
            process(stack, role, port)
        consumer, *producers = (f"127.0.0.1:{port}" for port in ports)
        broker = {
            "job_name": "rabbitmq", "metrics_path": "/metrics/detailed", "params": {"family": ["queue_coarse_metrics"]},
            "static_configs": [{"targets": [f"127.0.0.1:{broker_port}"]}],
        }
        jobs = {"scheduler-consumer": [consumer], "scheduler-producer": producers}
        prometheus = Prometheus(stack.ledger, jobs, [broker])
        prometheus.wait("count(up == 1) >= 4")
        print(f"== {SECONDS} s of work", flush=True)
        work(Host(stack.amqp_url))
        board = json.loads((FOLDER / "overview.json").read_text())
        target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "overview.png"
        draw(board, prometheus, SECONDS - 2, target)
        prometheus.stop()
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
