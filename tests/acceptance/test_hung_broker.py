"""A broker that accepts TCP and never responds: a frozen node, or a load balancer without a backend."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from uuid import uuid4

import pytest
from api_support import start_api
from support import DEADLINE, until

from scheduler.client import BrokerUnavailable, SchedulerClient


@pytest.fixture
def hung():
    """The URL of a port that accepts connections into its backlog and answers nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}/%2F"


@pytest.mark.parametrize("role", ["consumer", "producer", "worker"])
def test_a_process_waits_for_a_hung_broker(sidecar, hung, role):
    process = sidecar.start(role, AMQP_URL=hung)
    def tries():
        return sum(line["event"].startswith("RabbitMQ unavailable") for line in process.lines)

    until(lambda: tries() >= 2 or process.popen.poll() is not None, "two attempts to connect", within=4 * DEADLINE)
    assert process.popen.poll() is None, process.raw[-5:]


@pytest.mark.parametrize("arguments", [("consumer", "--no-wait"), ("dead", "list")])
def test_no_wait_exits_69_on_a_hung_broker(sidecar, hung, arguments):
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", *arguments], check=False, capture_output=True, text=True,
        env=os.environ | sidecar.env | {"AMQP_URL": hung, "METRICS_PORT": "0"}, timeout=5 * DEADLINE,
    )
    assert done.returncode == 69, done.stderr
    assert "Traceback" not in done.stderr


def test_the_api_reports_a_hung_broker(sidecar, hung):
    api = start_api(sidecar, AMQP_URL=hung)
    hasty = replace(api, patient=False)
    assert hasty.get("/dead").status == 503
    health = hasty.get("/health/detailed").json
    assert (health["servers"]["rabbitmq"]["status"], health["results_backlog"]) == ("unavailable", None)


def test_a_client_reports_a_hung_broker(hung):
    with pytest.raises(BrokerUnavailable), SchedulerClient(hung, timeout=2) as client:
        client.cancel(uuid4())
