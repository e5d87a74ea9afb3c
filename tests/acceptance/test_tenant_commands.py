"""A command runs for the tenants that its worker offers it to, and a tenant sees only these offers."""

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
    """Have a command run for a tenant, and return how its run ended."""

    def run(name, *arguments, tenant="default", **payload):
        job_id = host.request(run_at=utc().isoformat(), tenant=tenant, payload=payload,
                              target={"command": {"name": name, "arguments": list(arguments)}})
        return until(lambda: sidecar.sql("SELECT status::text, attempt, error, output FROM run_history"
                                         " WHERE job_id = %s", job_id), f"a run of {name}")[0]

    return run


def test_a_command_of_another_tenant_fails_like_one_that_nobody_offers(ended):
    for name, tenant in (("own", "acme"), ("acmes", "default"), ("acmes", "other")):
        run = ended(name, tenant=tenant)
        assert (run["status"], run["attempt"], run["output"]) == ("dead", 1, None)
        assert run["error"] == f"no worker offers the command {name}"
    for name, tenant in (("own", "default"), ("acmes", "acme"), ("shared", "acme"), ("shared", "default")):
        assert ended(name, tenant=tenant)["status"] == "succeeded", (name, tenant)


def test_a_placeholder_does_not_become_an_option(ended):
    run = ended("own", "{{payload.x}}", x="--help")
    assert (run["status"], run["attempt"]) == ("dead", 1)
    assert "argument 1 begins with -" in run["error"]
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
    until(lambda: [each for each in api.get("/replicas").json["items"] if each["role"] == "worker"], "the worker")

    def shown(tenant) -> dict:
        answer = Api.as_(api, "viewer", tenant).get("/replicas")
        for hidden in (worker.lines[0].get("host", "host"), str(worker.popen.pid), '"pid"', '"host"', "port",
                       '"busy"', '"id"'):
            assert hidden not in answer.body.decode()
        return {each["role"]: each for each in answer.json["items"]}

    until(lambda: len(shown("acme")) == 4, "a heartbeat of each role")
    for tenant, offers in (("acme", ["command.acmes", "command.shared", "webhooks"]),
                           ("other", ["command.shared", "webhooks"]),
                           ("default", ["command.own", "command.shared", "webhooks"])):
        found = shown(tenant)
        assert found["worker"] == {"role": "worker", "count": 1, "offers": offers}
        assert (found["producer"]["count"], found["consumer"]["count"], found["api"]["count"]) == (1, 1, 1)
        page = api.as_("operator", tenant).page("/jobs/new")
        listed = {each for each in ("own", "acmes", "shared") if f'<option value="{each}">' in page}
        assert listed == {each.removeprefix("command.") for each in offers if each != "webhooks"}
    whole = next(each for each in api.get("/replicas").json["items"] if each["role"] == "worker")
    assert whole["pid"] == worker.popen.pid
    assert sorted(whole["offers"]) == ["command.acmes", "command.own", "command.shared", "webhooks"]


def test_a_worker_of_another_release_or_with_a_bad_header(sidecar, host):
    sidecar.start("consumer").ready()
    said = {"host": "a", "pid": 1, "version": "1", "in_flight": 0, "started_at": "2026-11-30T06:00:00Z",
            "offers": ["webhooks", "command.x"], "beat": 2}
    host.publish("worker", said | {"id": str(uuid4())})
    for bad in ("nonsense", "[]", '[["*"]]', "[[1], []]", "x" * 70_000):
        host.publish("worker", said | {"id": str(uuid4())}, headers={"x-offer-tenants": bad})
    for _ in range(5):
        assert host.get("scheduler_dead")[0].routing_key == "worker"
    host.publish("worker", said | {"id": str(uuid4())}, headers={"x-offer-tenants": '[["*"], ["acme"]]'})
    rows = until(lambda: (found := sidecar.sql("SELECT offer_tenants FROM workers")) and len(found) == 2 and found,
                 "both workers")
    assert sorted((row["offer_tenants"] for row in rows), key=str) == [None, {"command.x": ["acme"]}]


def test_a_tenant_that_fills_a_shared_command_does_not_keep_another_from_its_turn(sidecar, host, tmp_path):
    sidecar.up()
    program = ("import os, sys\nname = sys.argv[1]\nopen('began', 'a').write(name + '\\n')\n"
               "import time\nwhile not os.path.exists('go-' + name): time.sleep(0.02)\n")
    path = tmp_path / "commands.toml"
    path.write_text(f"[slow]\nrun = {json.dumps([sys.executable, '-c', program])}\n"
                    'tenants = ["*"]\narguments = true\n'
                    f"directory = {json.dumps(str(tmp_path))}\n")
    sidecar.start("worker", SCHEDULER_COMMANDS_FILE=str(path)).ready()

    def ask(tenant, name):
        return host.request(run_at=utc().isoformat(), tenant=tenant, run={"timeout": 600},
                            target={"command": {"name": "slow", "arguments": [name]}})

    def began(count):
        def there():
            lines = (tmp_path / "began").read_text().split() if (tmp_path / "began").exists() else []
            return lines if len(lines) >= count else None

        return until(there, f"{count} that have begun")

    def waiting():
        return sidecar.sql("SELECT count(*) AS n FROM runs WHERE status IN ('delivered', 'waiting')")[0]["n"]

    ask("noisy", "first")
    assert began(1) == ["first"]
    for number in range(40):
        ask("noisy", f"noisy{number}")
    until(lambda: waiting() == 40, "all of the noisy tenant's emitted")
    quiet = ask("quiet", "quiet")
    emitted = "SELECT 1 FROM runs WHERE job_id = %s AND status = 'delivered'"
    until(lambda: sidecar.sql(emitted, quiet), "the other's emitted")
    # The worker has put off most of the noisy tenant's, and holds the other's.
    until(lambda: host.channel.queue_declare("scheduler_command_slow", passive=True).method.message_count == 0,
          "an empty queue")
    (tmp_path / "go-first").touch()
    assert began(2) == ["first", "quiet"]
