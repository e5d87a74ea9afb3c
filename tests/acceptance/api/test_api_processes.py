"""SCHEDULER_API_PROCESSES: several behind one address, and from outside they look like one."""

import json
import os
import signal
import socket
from urllib.parse import urlsplit

import psutil
import pytest
from api_support import BUSY, Api, start_api
from support import Process, until


@pytest.fixture
def many(sidecar) -> Api:
    return start_api(sidecar, SCHEDULER_API_PROCESSES="3")


def children(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.popen.pid).children()


def counted(process: Process, requests: int) -> None:
    """Wait until so many requests are counted, which each is once it is answered."""
    def found() -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in process.http("/metrics")[1].splitlines()
                   if line.startswith("scheduler_api_requests_total{") and f'status="{BUSY}"' not in line)

    until(lambda: found() == requests, f"{requests} requests counted")


def refused(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=30).close()
    except ConnectionRefusedError:
        return True
    return False


def test_all_serve_and_are_told_of_as_one(sidecar, many):
    [process] = sidecar.processes
    pids = {each.pid for each in children(process)}
    assert len(pids) == 3
    for _ in range(60):
        many.job()
    counted(process, 60)
    until(lambda: process.metric("jobs_queued_total") == 60, "60 jobs counted")
    until(lambda: len(many.get("/replicas").json["items"]) == 3, "all three have a heartbeat")
    shown = {each["pid"]: each for each in many.get("/replicas").json["items"]}
    assert set(shown) == pids
    assert {each["metrics_port"] for each in shown.values()} == {process.port}
    assert process.http("/livez")[0] == 200
    until(lambda: sum(each["event"] == "request" for each in process.lines) >= 60, "a line for each")


def test_one_that_dies_is_replaced_and_what_it_counted_stays(sidecar, many):
    [process] = sidecar.processes
    for _ in range(30):
        many.get("/jobs")
    counted(process, 30)
    before = {each.pid for each in children(process)}
    os.kill(min(before), signal.SIGKILL)
    until(lambda: len({each.pid for each in children(process)} - before) == 1, "another takes its place")
    process.ready()
    assert process.logged("a process of the API has ended: starting another")["code"] == -signal.SIGKILL
    for _ in range(30):
        assert many.get("/jobs").status == 200
    counted(process, 60)
    assert before - {min(before)} < {each.pid for each in children(process)}


def test_one_that_cannot_work_makes_it_not_ready_and_says_why(sidecar, many):
    [process] = sidecar.processes
    frozen = children(process)[0]
    frozen.suspend()
    try:
        status, told = process.http("/readyz")
        assert status == 503
        assert "does not answer" in json.loads(told)["missing"]["process"]["problem"]
        assert process.http("/livez")[0] == 200  # it may come back
    finally:
        frozen.resume()
    process.ready()
    assert many.get("/jobs").status == 200


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_of_them(sidecar, many, how):
    [process] = sidecar.processes
    started = children(process)
    assert process.stop(how) == 0
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
    assert refused(many.url)


def test_without_the_one_that_started_them_none_stays(sidecar, many):
    [process] = sidecar.processes
    started = children(process)
    process.kill()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
    assert refused(many.url)


def test_what_is_wrong_with_the_settings_ends_it(sidecar):
    process = sidecar.start("api", API_PORT="0", SCHEDULER_API_PROCESSES="2")
    assert process.ended() == 78
    assert "SCHEDULER_JWT_KEY" in process.raw[-1]
    sidecar.processes.clear()
