"""Commands belong to tenants: who may run them, who sees them, and how tenants share them."""

import json
import sys
from uuid import uuid4

import pytest
from api_support import Api, start_api
from support import until, utc

FILE = """
[own]
run = {run}
arguments = true
[acmes]
run = {run}
tenants = ["acme"]
arguments = true
argument_pattern = "[a-z0-9=-]+"
[shared]
run = {run}
tenants = ["*"]
arguments = true
options = true
"""
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


@pytest.fixture
def worker(sidecar, tmp_path):
    sidecar.up()
    path = tmp_path / "commands.toml"
    path.write_text(FILE.format(run=json.dumps([sys.executable, "-c", SHOW])))
    return sidecar.start("worker", SCHEDULER_COMMANDS_FILE=str(path)).ready()


@pytest.fixture
def ended(sidecar, host, worker):  # noqa: ARG001 - it runs them
    """Run a command for a tenant, and return its finished run."""

    def run(name, *arguments, tenant="default", **payload):
        job_id = host.request(run_at=utc().isoformat(), tenant=tenant, payload=payload,
                              target={"command": {"name": name, "arguments": list(arguments)}})
        return until(lambda: sidecar.sql("SELECT status::text, attempt, error, output FROM run_history"
                                         " WHERE job_id = %s", job_id), f"a run of {name}")[0]

    return run


def test_a_command_of_another_tenant_fails_like_an_unknown_one(ended):
    for name, tenant in (("own", "acme"), ("acmes", "default"), ("acmes", "other")):
        run = ended(name, tenant=tenant)
        assert (run["status"], run["attempt"], run["output"]) == ("dead", 1, None)
        assert run["error"] == f"no worker offers the command {name}"
    for name, tenant in (("own", "default"), ("acmes", "acme"), ("shared", "acme"), ("shared", "default")):
        assert ended(name, tenant=tenant)["status"] == "succeeded", (name, tenant)


def test_a_placeholder_does_not_become_an_option(ended):
    run = ended("own", "{{payload.x}}", x="--help")
    assert (run["status"], run["attempt"]) == ("dead", 1)
    assert "argument 1 starts with -" in run["error"]
    for name, arguments, given in (("own", ["--day", "a{{payload.x}}"], ["--day", "a--help"]),
                                   ("own", ["--day={{payload.x}}"], ["--day=--help"]),
                                   ("shared", ["{{payload.x}}"], ["--help"])):
        run = ended(name, *arguments, x="--help")
        assert json.loads(run["output"]["stdout"]) == given


def test_each_argument_matches_the_pattern_as_a_whole(ended):
    run = ended("acmes", "--day=1", "{{payload.x}}", tenant="acme", x="a b")
    assert (run["status"], run["attempt"]) == ("dead", 1)
    assert "does not match the command's argument_pattern" in run["error"]
    run = ended("acmes", "--day=1", "{{payload.x}}", tenant="acme", x="a-b")
    assert json.loads(run["output"]["stdout"]) == ["--day=1", "a-b"]


def test_a_tenant_sees_counts_and_the_offers_that_it_may_use(sidecar, worker):
    api = start_api(sidecar)
    until(lambda: [item for item in api.get("/replicas").json["items"] if item["role"] == "worker"], "the worker")

    def shown(tenant) -> dict:
        answer = Api.as_(api, "viewer", tenant).get("/replicas")
        for hidden in (worker.lines[0].get("host", "host"), str(worker.popen.pid), '"pid"', '"host"', "port",
                       '"busy"', '"id"'):
            assert hidden not in answer.body.decode()
        return {item["role"]: item for item in answer.json["items"]}

    until(lambda: len(shown("acme")) == 4, "a heartbeat of each role")
    for tenant, offers in (("acme", ["command.acmes", "command.shared", "webhooks"]),
                           ("other", ["command.shared", "webhooks"]),
                           ("default", ["command.own", "command.shared", "webhooks"])):
        found = shown(tenant)
        assert found["worker"] == {"role": "worker", "count": 1, "offers": offers}
        assert (found["producer"]["count"], found["consumer"]["count"], found["api"]["count"]) == (1, 1, 1)
        page = api.as_("operator", tenant).page("/jobs/new")
        listed = {each for each in ("own", "acmes", "shared") if f'<option value="{each}">' in page}
        assert listed == {offer.removeprefix("command.") for offer in offers if offer != "webhooks"}
    whole = next(item for item in api.get("/replicas").json["items"] if item["role"] == "worker")
    assert whole["pid"] == worker.popen.pid
    assert sorted(whole["offers"]) == ["command.acmes", "command.own", "command.shared", "webhooks"]


def test_a_worker_of_another_release_or_with_a_bad_header(sidecar, host):
    sidecar.start("consumer").ready()
    report = {"host": "a", "pid": 1, "version": "1", "in_flight": 0, "started_at": "2026-11-30T06:00:00Z",
            "offers": ["webhooks", "command.x"], "beat": 2}
    host.publish("worker", report | {"id": str(uuid4())})
    for bad in ("nonsense", "[]", '[["*"]]', "[[1], []]", "x" * 70_000):
        host.publish("worker", report | {"id": str(uuid4())}, headers={"x-offer-tenants": bad})
    for _ in range(5):
        assert host.get("scheduler_dead")[0].routing_key == "worker"
    host.publish("worker", report | {"id": str(uuid4())}, headers={"x-offer-tenants": '[["*"], ["acme"]]'})
    rows = until(lambda: (found := sidecar.sql("SELECT offer_tenants FROM workers")) and len(found) == 2 and found,
                 "both workers")
    assert sorted((row["offer_tenants"] for row in rows), key=str) == [None, {"command.x": ["acme"]}]


class SharedCommand:
    """A command for all tenants that runs until the test releases it."""

    PROGRAM = ("import os, sys\nname = sys.argv[1]\nopen('started', 'a').write(name + '\\n')\n"
               "import time\nuntil = time.monotonic() + 600\n"
               "while not os.path.exists('release-' + name) and time.monotonic() < until: time.sleep(0.02)\n")

    def __init__(self, sidecar, host, folder, options=""):
        self.sidecar, self.host, self.folder = sidecar, host, folder
        sidecar.up()
        path = folder / "commands.toml"
        path.write_text(f"[slow]\nrun = {json.dumps([sys.executable, '-c', self.PROGRAM])}\n"
                        'tenants = ["*"]\narguments = true\n'
                        f"directory = {json.dumps(str(folder))}\n{options}\n")
        sidecar.start("worker", SCHEDULER_COMMANDS_FILE=str(path)).ready()

    def request(self, tenant, name, **run):
        return self.host.request(run_at=utc().isoformat(), tenant=tenant, run={"timeout": 600} | run,
                                 target={"command": {"name": "slow", "arguments": [name]}})

    def release(self, name):
        (self.folder / f"release-{name}").touch()

    def started(self, count):
        """Wait until at least so many have started; return their names in that order."""
        path = self.folder / "started"

        def names():
            lines = path.read_text().split() if path.exists() else []
            return lines if len(lines) >= count else None

        return until(names, f"{count} started commands")

    def wait_prefetched(self):
        """Wait until the worker has every event of the queue."""
        declare = self.host.channel.queue_declare
        until(lambda: not declare("scheduler_command_slow", passive=True).method.message_count, "an empty queue")

    def wait_delivered(self, *job_ids):
        emitted = "SELECT 1 FROM runs WHERE job_id = ANY(%s::uuid[]) AND status IN ('delivered', 'waiting')"
        until(lambda: len(self.sidecar.sql(emitted, list(job_ids))) == len(job_ids), "emitted events")

    def end(self, job_id):
        """Wait until the run of a job has ended, and return it."""
        ended = "SELECT status::text, attempt, error FROM run_history WHERE job_id = %s"
        return until(lambda: self.sidecar.sql(ended, job_id), "the end of a run")[0]


def test_a_tenant_with_many_events_does_not_delay_another_tenant(sidecar, host, tmp_path):
    slow = SharedCommand(sidecar, host, tmp_path)
    slow.request("noisy", "first")
    assert slow.started(1) == ["first"]
    slow.wait_delivered(*(slow.request("noisy", f"noisy{number}") for number in range(40)))
    slow.wait_delivered(slow.request("quiet", "quiet"))
    # The worker has snoozed most events of the noisy tenant, and holds the event of the quiet one.
    slow.wait_prefetched()
    slow.release("first")
    assert slow.started(2) == ["first", "quiet"]


def test_a_tenant_whose_commands_do_not_end_leaves_a_slot_to_another(sidecar, host, tmp_path):
    slow = SharedCommand(sidecar, host, tmp_path, "concurrency = 2")
    slow.request("acme", "acme0")
    assert slow.started(1) == ["acme0"]
    slow.wait_delivered(slow.request("acme", "acme1"))
    slow.wait_prefetched()
    slow.request("beta", "beta")
    assert slow.started(2) == ["acme0", "beta"]
    slow.release("acme0")
    slow.release("beta")
    assert slow.started(3) == ["acme0", "beta", "acme1"]


def test_the_timeout_of_a_command_ends_a_longer_run(sidecar, host, tmp_path):
    slow = SharedCommand(sidecar, host, tmp_path, "timeout = 1")
    job_id = slow.request("acme", "acme", timeout=604_800, max_attempts=1)
    assert slow.end(job_id)["error"] == "timed out after 1 s and ended with SIGTERM (15)"
    slow.release("beta")
    slow.request("beta", "beta")
    assert slow.started(2) == ["acme", "beta"]


def test_a_backtracking_argument_pattern_fails_only_that_attempt(sidecar, host, tmp_path):
    slow = SharedCommand(sidecar, host, tmp_path, 'argument_pattern = "([a-z]+)+"')
    job_id = slow.request("acme", "a" * 40 + "!")
    run = slow.end(job_id)
    assert (run["status"], run["attempt"]) == ("dead", 1)
    assert "argument_pattern took more than 2 s of CPU time" in run["error"]
    slow.release("beta")
    slow.request("beta", "beta")
    assert slow.started(1) == ["beta"]
