"""Three workers, a nightly report, a cleanup every minute and a handler: a cron with results.

    AMQP_URL=amqp://… python examples/fleet/fleet.py

The sidecar (`scheduler consumer` and `scheduler producer`) must be running; workers need RabbitMQ alone.
"""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pika

HERE = Path(__file__).resolve().parent
AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
REPORT, CLEANUP, GREETING = (str(uuid.uuid4()) for _ in range(3))
JOBS = [
    {"id": REPORT, "job_type": "reports", "name": "Nightly report", "cron": "0 3 * * *",
     "timezone": "Europe/Berlin", "run": {"timeout": 7200, "overlap": "skip"},
     "payload": {"customer": "Müller & Söhne"},
     "target": {"command": {"name": "report",
                            "arguments": ["--for", "{{payload.customer}}", "--at", "{{due_at}}"]}}},
    {"id": CLEANUP, "job_type": "maintenance", "name": "Clean-up", "every": "PT1M", "run": {"overlap": "skip"},
     "target": {"command": {"name": "clean-up"}}},
    {"id": GREETING, "job_type": "greeting", "name": "A handler's job", "every": "PT1M", "run": {},
     "payload": {"name": "Ada"}},
]


def commands(folder: Path) -> str:
    """Write the commands that a worker offers; it runs no others."""
    python = json.dumps(sys.executable)
    path = folder / "commands.toml"
    path.write_text(f"""
[report]
run = [{python}, {json.dumps(str(HERE / "report.py"))}]
arguments = true
directory = {json.dumps(str(folder))}
grace = 2
memory = "1 GiB"

[clean-up]
run = [{python}, {json.dumps(str(HERE / "clean_up.py"))}]
directory = {json.dumps(str(folder))}
""")
    return str(path)


def worker(*arguments: str, **env: str) -> subprocess.Popen[bytes]:
    """Start a worker; it logs errors to standard error."""
    settings = {"AMQP_URL": AMQP_URL, "METRICS_HOST": "127.0.0.1", "METRICS_PORT": "0", "LOG_LEVEL": "error"}
    return subprocess.Popen(
        [sys.executable, "-m", "scheduler", "worker", *arguments], env=os.environ | settings | env, cwd=HERE,
    )


def ends(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str) -> Iterator[dict]:
    """Yield each finished run."""
    for method, _, body in channel.consume(queue, inactivity_timeout=60):
        if method is None:
            sys.exit("nothing ended within a minute: are `scheduler consumer` and `scheduler producer` running?")
        channel.basic_ack(method.delivery_tag)
        yield json.loads(body)


def main() -> None:
    """Request three jobs, shut a machine down in the middle of the report, and print the results."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        offered = commands(folder)
        fleet = [worker(SCHEDULER_COMMANDS_FILE=offered, SCHEDULER_STOP_GRACE="0")]
        for process in fleet:
            stack.callback(process.wait)
            stack.callback(process.terminate)
        connection = pika.BlockingConnection(pika.URLParameters(AMQP_URL))
        channel = stack.enter_context(connection.channel())
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "schedule.events", "finished")
        report, *others = JOBS
        send(channel, "request", report)
        send(channel, "trigger", {"id": REPORT})  # as if it were three in the morning

        while not (folder / "report.began").exists():
            connection.process_data_events(0.1)
        print("the report runs on the first machine, which is now shut down", flush=True)
        fleet += [worker(SCHEDULER_COMMANDS_FILE=offered), worker("--handlers", "handlers")]
        for process in fleet[1:]:
            stack.callback(process.wait)
            stack.callback(process.terminate)
        fleet[0].terminate()
        fleet[0].wait()
        for job in others:
            send(channel, "request", job)

        names = {job["id"]: job["name"] for job in JOBS}
        open_jobs = set(names)
        for end in ends(channel, queue):
            output = end["output"]
            text = output["stdout"].strip() if isinstance(output, dict) else output
            print(f"{names[end['job_id']]}: {end['status']}, {end['attempts']} attempt(s): {text}", flush=True)
            open_jobs.discard(end["job_id"])
            if not open_jobs:
                break
        for job in JOBS:
            send(channel, "cancel", {"id": job["id"]})


def send(channel: pika.adapters.blocking_connection.BlockingChannel, key: str, body: dict) -> None:
    """Publish a command; it must reach a queue."""
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    channel.basic_publish("schedule.commands", key, json.dumps(body).encode(), properties, mandatory=True)


if __name__ == "__main__":
    main()
