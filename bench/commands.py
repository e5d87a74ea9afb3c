"""Measure the time from a trigger to a command's first byte, compared with starting the program directly."""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import pika

from bench import report
from bench.servers import Bed
from scheduler.dev.servers import Stack

# The time of its first byte, by the shared clock.
PROGRAMS = {
    "python": [sys.executable, "-c", "import time; print(time.time(), file=open('times', 'a'))"],
    "sh": ["/bin/sh", "-c", "date +%s.%N >> times"],
}
PAUSE = 0.3  # pause between two commands on an idle machine


def _times(folder: Path, count: int, deadline: float = 60.0) -> list[float]:
    """Wait until `count` commands have written their time."""
    began = time.monotonic()
    while time.monotonic() - began < deadline:
        path = folder / "times"
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [float(line) for line in lines]
        time.sleep(0.005)
    raise TimeoutError(f"{count} commands did not run within {deadline:g} s")


def bare(folder: Path, command: list[str], rounds: int) -> list[float]:
    """Return the milliseconds to the first byte of a program started directly."""
    seconds = []
    for number in range(rounds):
        began = time.time()
        with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
            seconds.append((_times(folder, number + 1)[-1] - began) * 1000)
        time.sleep(PAUSE)
    return seconds


def triggered(bed: Bed, folder: Path, job: str, rounds: int) -> list[float]:
    """Return the milliseconds from publishing a trigger to the command's first byte."""
    connection = pika.BlockingConnection(pika.URLParameters(bed.amqp_url))
    channel = connection.channel()
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    seconds = []
    for number in range(rounds):
        began = time.time()
        channel.basic_publish("schedule.commands", "trigger", json.dumps({"id": job}).encode(), properties)
        seconds.append((_times(folder, number + 1)[-1] - began) * 1000)
        connection.sleep(PAUSE)
    connection.close()
    return seconds


def _ask(bed: Bed, name: str) -> str:
    job = str(uuid4())
    body = {"id": job, "job_type": "bench", "cron": "0 0 1 1 *", "run": {},
            "target": {"command": {"name": name}}}
    connection = pika.BlockingConnection(pika.URLParameters(bed.amqp_url))
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    connection.channel().basic_publish("schedule.commands", "request", json.dumps(body).encode(), properties)
    connection.close()
    return job


def run(stack: Stack, rounds: int = 40) -> list[report.Row]:
    """Measure each program, first bare and then through the sidecar."""
    measurements: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as opened:
        bed = opened.enter_context(Bed(stack))
        base = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        tables = []
        for name, command in PROGRAMS.items():
            (base / name).mkdir()
            tables.append(f"[{name}]\nrun = {json.dumps(command)}\ndirectory = {json.dumps(str(base / name))}\n")
        (base / "commands.toml").write_text("\n".join(tables))
        for role in ("consumer", "producer"):
            opened.enter_context(bed.process("scheduler", role))
        opened.enter_context(bed.process("scheduler", "worker", SCHEDULER_COMMANDS_FILE=str(base / "commands.toml")))
        for name, command in PROGRAMS.items():
            (base / f"bare-{name}").mkdir()
            time.sleep(2)
            alone = bare(base / f"bare-{name}", command, rounds)
            measurements[name] = {"bare": alone, "triggered": triggered(bed, base / name, _ask(bed, name), rounds)}
    rows = _rows({name: {how: statistics.median(values) for how, values in both.items()} for name, both in measurements.items()})
    report.write("commands", rows, measurements)
    return rows


def _rows(medians: dict[str, dict[str, float]]) -> list[report.Row]:
    python, shell = medians["python"], medians["sh"]
    return [
        report.limit("trigger to a command's first byte, median", python["triggered"], 50, "ms"),
        report.at_most("the same, a Python program", python["triggered"], python["bare"], "bare Popen", 3, " ms"),
        report.limit("trigger to the first byte of a shell script, median", shell["triggered"], 50, "ms",
                     f"bare Popen: {shell['bare']:,.4g} ms"),
    ]
