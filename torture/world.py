"""One run of a plan: servers, processes, host, nemesis; returns the history."""

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg2

import torture.families
import torture.families_beyond
import torture.families_runs  # noqa: F401 - registers its families
from torture import host as hosts
from torture.endpoint import Endpoints
from torture.fleet import Fleet
from torture.generator import steps
from torture.history import History
from torture.nemesis import Nemesis
from torture.people import KEY, People, free_port
from torture.probes import Probes
from torture.proxy import Proxy
from torture.sender import Sender
from torture.settling import settle

HERE = Path(__file__).parent
SCRIPT = """#!/bin/sh
note() {
  printf '{"event_id": "%s", "job": "%s", "attempt": %s, "what": "%s", "t": %s, "tracked": true}\\n' \\
    "$SCHEDULER_EVENT_ID" "$SCHEDULER_JOB_ID" "$SCHEDULER_ATTEMPT" "$1" "$(date +%s.%N)" >> JOURNAL
}
note begin
cat > /dev/null
sleep $1
note end
exit $2
"""


class World:
    """Fresh database and virtual host on running servers."""

    def __init__(self, stack: Any, code: Path, plan: dict[str, Any], templates: dict[Path, str]) -> None:
        self.plan = plan
        self.history = History()
        self.folder = Path(tempfile.mkdtemp(prefix="torture-"))
        self._stack = stack
        self._tune(plan.get("broker", {}))
        self.fleet = Fleet(self.history, code, self.folder, stack.adopt)
        self.proxy = Proxy(lambda message: self.history.add("accept", link=message["accept"]))
        self.endpoints = Endpoints(self.history)
        self._template(templates, code)
        self.database_url = stack.create_database(template=templates[code])
        self.host_database = stack.create_database()
        self.amqp_url = stack.create_vhost()
        due = plan.get("broker", {}).get("due_arguments")
        hosts.declare(self.amqp_url, due, ["fast", "slow.a"], relay=bool(plan["fleet"].get("outbox")))
        self.links: list[str] = []
        self._port = 0
        self._people()
        reads = not any(self.plan["fleet"].get(role) for role in ("runner", "handlers"))
        self.history.host_reads = reads
        self.host = hosts.Host(self.amqp_url, self.history, ["torture_fast", "torture_slow.a"], reads_due=reads, user=plan.get("user"))
        self.sender = Sender(self.history, self.amqp_url, self.endpoints.url)
        self.sender.host_database = self.host_database
        self.sender.user = plan.get("user")
        self.sender.people = People(self.fleet, self.database_url, self._port)
        self.probes = Probes(self.history, self.fleet, self.database_url, self.amqp_url)

    def _tune(self, broker: dict[str, Any]) -> None:
        """Set the consumer timeout of channels that are opened from now on."""
        timeout = broker.get("consumer_timeout", 1_800_000)
        tick = 1000 if timeout < 60_000 else 60_000
        self._stack.rabbitmq.evaluate(
            f"begin application:set_env(rabbit, consumer_timeout, {timeout}), "
            f"application:set_env(rabbit, channel_tick_interval, {tick}) end")

    def _template(self, templates: dict[Path, str], code: Path) -> None:
        if code not in templates:
            name = f"torture_template_{len(templates)}"
            url = self._stack.create_database(name)
            status, output = self.fleet.run(["migrate"], {"DATABASE_URL": url})
            if status:
                raise RuntimeError(f"migrate failed: {output}")
            templates[code] = name

    def _via(self, url: str, member: str, server: str) -> str:
        parts = urlsplit(url)
        link = f"{member}/{server}"
        port = self.proxy.open(link, parts.port)
        self.links.append(link)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition(":")[0] + f":{port}"))

    def _people(self) -> None:
        (self.folder / "run.sh").write_text(SCRIPT.replace("JOURNAL", str(self.folder / "journal")), encoding="utf-8")
        (self.folder / "run.sh").chmod(0o755)
        (self.folder / "commands.toml").write_text(
            f'[torture]\nrun = ["{self.folder / "run.sh"}"]\narguments = true\nconcurrency = 20\n', encoding="utf-8")
        for role, count in self.plan["fleet"].items():
            for number in range(1, count + 1):
                name = f"{role}-{number}"
                env = {**self.plan.get("env", {}), "SCHEDULER_JWT_KEY": KEY, "TORTURE_JOURNAL": str(self.folder / "journal"),
                       "AMQP_URL": self._via(self.amqp_url, name, "broker")}
                if role in {"worker", "handlers"}:
                    env |= {"SCHEDULER_COMMANDS_FILE": str(self.folder / "commands.toml"),
                            "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.1", "SCHEDULER_STOP_GRACE": "5"}
                if role != "runner":
                    env["DATABASE_URL"] = self._via(self.host_database if role == "outbox" else self.database_url, name, "database")
                if role == "api":
                    self._port = free_port()
                    env |= {"API_PORT": str(self._port), "SCHEDULER_API_RATE": "10000"}
                arguments = {"runner": [str(HERE / "hands.py")],
                             "handlers": ["-m", "scheduler", "worker", "--handlers", "hands"]}.get(
                                 role, ["-m", "scheduler", role])
                if role == "handlers":
                    env["PYTHONPATH"] = str(HERE)
                self.fleet.add(name, arguments, env)
        if self.plan["fleet"].get("outbox"):
            _, tables = self.fleet.run(["outbox", "--sql"], {"DATABASE_URL": self.host_database})
            with psycopg2.connect(self.host_database) as connection, connection.cursor() as cursor:
                cursor.execute(tables)

    def run(self, say: Callable[[str], None]) -> History:
        drawn = steps(self.plan)
        self.fleet.start()
        self.probes.start()
        self.host.start()
        origin = math.ceil(time.time()) + 1.0
        self.history.began = origin
        self.sender.start(origin, drawn)
        victims = sorted({step["job"] for step in drawn if step["family"] == "poked"}) or [step["job"] for step in drawn[:50]]
        nemesis = Nemesis(self.plan, self.history, self.fleet, self.proxy, self.host, self._stack, self.database_url,
                          self.links, victims)
        nemesis.start(origin)
        try:
            end = origin + self.plan["length"]
            while time.time() < end or nemesis.busy:
                time.sleep(0.2)
            self.history.add("healed")
            settle(self.plan, self.history, self.sender, self.journal, say)
        finally:
            nemesis.close()
        self.fleet.close()
        self._collect()
        return self.history

    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "journal"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]

    def _collect(self) -> None:
        """Record facts that are only known at the end: executions, outcomes of attempts, rows left in the outbox."""
        for entry in self.journal():
            self.history.records.append({**entry, "what": "did", "did": entry["what"]})
        env = {"DATABASE_URL": self.database_url}
        status, output = self.fleet.run(["run", "export", "--since", "2000-01-01T00:00:00Z", "--until", "2999-01-01T00:00:00Z"], env)
        for line in output.splitlines() if status == 0 else ():
            run = json.loads(line)
            attempts = [{name: attempt.get(name) for name in ("attempt", "outcome", "worker", "started_at", "finished_at")}
                        for attempt in run.get("attempts", [])]
            self.history.add("exported", event_id=run["event_id"], job=run["job_id"], status=run["status"], attempts=attempts)
        if self.plan["fleet"].get("outbox"):
            with psycopg2.connect(self.host_database) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT body->>'id', attempts, last_error FROM scheduler_outbox")
                for job, attempts, problem in cursor.fetchall():
                    self.history.add("unsent", job=job, attempts=attempts, problem=problem)

    def close(self, keep: Path | None = None) -> None:
        self.fleet.close()
        self.probes.close()
        self.sender.close()
        self.host.close()
        self.endpoints.close()
        self.proxy.close()
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            self.history.write(keep / "history.jsonl")
            for log in self.folder.glob("*.log"):
                shutil.copy(log, keep / log.name)
        shutil.rmtree(self.folder, ignore_errors=True)
        for url in (self.database_url, self.host_database):
            self._stack.drop_database(url)
        self._stack.delete_vhost(self.amqp_url)
