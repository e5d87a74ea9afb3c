"""The examples are programs that work: each is run, as a host would run it, against the real sidecar."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from node_support import node, npm_install
from support import DEADLINE, Host, Sidecar, until

EXAMPLES = Path(__file__).parents[2] / "examples"
README = EXAMPLES.parent / "README.md"
ADDRESS = "amqp://guest:guest@localhost:5672/%2F"  # of the README
DUE = r"reminded of invoice 42, due at 20\d\d-"


@pytest.fixture(scope="module")
def running(stack, template):
    """One sidecar for all examples, which run one after the other."""
    sidecar = Sidecar(stack.create_database(template=template), stack.create_vhost())
    yield sidecar.up()
    sidecar.close()


@pytest.fixture
def run(running, stack):
    """Run a program as a host, and return what it printed."""
    database = stack.create_database()

    def _run(*command, cwd=None):
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, timeout=5 * DEADLINE,
            env=os.environ | {"AMQP_URL": running.amqp_url, "HOST_DATABASE_URL": database},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield _run
    stack.drop_database(database)
    host = Host(running.amqp_url)
    assert host.drain("mainapp_due") == [], "the example left its event unacknowledged"
    host.close()


@pytest.mark.parametrize("name", ["plain_pika.py", "raw_amqp.py"])
def test_a_reminder_through_plain_messages(run, name):
    printed = run(sys.executable, str(EXAMPLES / name))
    assert re.search(f"asked for .*\n{DUE}", printed)


def test_a_django_project(run):
    printed = run(sys.executable, str(EXAMPLES / "django_shop.py"))
    assert "reminded of invoice 1" in printed
    assert "invoice 1 has 1 reminder" in printed


def test_a_fastapi_application(run):
    printed = run(sys.executable, str(EXAMPLES / "fastapi_shop.py"))
    assert printed == "created invoice 1\nreminded of invoice 1\n"


def test_a_fleet_of_workers(run):
    printed = run(sys.executable, str(EXAMPLES / "fleet" / "fleet.py"))
    report = "report for Müller & Söhne, due at 20"
    assert f"\nNightly report: succeeded, 2 attempt(s): {report}" in printed
    assert "\nClean-up: succeeded, 1 attempt(s): removed 0 old file(s)\n" in printed
    assert "\nA handler's job: succeeded, 1 attempt(s): hello, Ada\n" in printed


@pytest.fixture
def node_folder(tmp_path):
    """A copy of the example for Node.js, with its packages."""
    folder = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    npm_install(folder)
    return folder


def test_a_node_program(run, running, node_folder):
    folder = node_folder
    printed = run(node(), "index.js", cwd=folder)
    assert re.search(f"accepted .*\n{DUE}.*\nresult of attempt 1 recorded\n", printed)
    [row] = until(lambda: running.sql("SELECT * FROM run_history WHERE worker = 'node-1'"), "the run's end")
    assert (row["status"], row["attempt"], row["output"]) == ("succeeded", 1, {"sent": True})


@pytest.fixture
def started():
    """Start programs that go on for ever, and end them with the test."""
    running = []

    def _started(*command, **options):
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options))
        return running[-1]

    yield _started
    for each in running:
        each.kill()
        each.communicate()


def snippet(language, running, number=0):
    """Return a piece of the README's code, with the address of the sidecar at hand."""
    code = re.findall(f"```{language}\n(.*?)```", README.read_text(), re.DOTALL)[number]
    assert ADDRESS in code
    return code.replace(ADDRESS, running.amqp_url)


def test_the_readmes_first_request_in_python(sidecar, started):
    # A sidecar of its own: the program is ended while it may still have an event.
    program = started(sys.executable, "-u", "-c", snippet("python", sidecar.up()))
    assert "'payload': {'invoice': 42}" in program.stdout.readline()


def test_the_readmes_life_of_a_run_in_ten_lines(sidecar, started):
    code = snippet("python", sidecar.up(), 2)
    assert len(code.splitlines()) == 10
    started(sys.executable, "-u", "-c", code)
    [row] = until(lambda: sidecar.sql("SELECT * FROM run_history"), "the run's end")
    assert [each["outcome"] for each in row["attempts"]] == ["failed", "succeeded"]
    assert (row["status"], row["attempts"][1]["output"]) == ("succeeded", '{"sent":42}')
    assert "ConnectionError: mail server away" in row["attempts"][0]["error"]


def test_the_readmes_request_in_node(running, started, node_folder):
    imports = "const amqp = require('amqplib'); const { randomUUID } = require('crypto');"
    started(node(), "-e", f"{imports} (async () => {{ {snippet('js', running)} }})();", cwd=node_folder)
    stored = until(lambda: running.sql("SELECT * FROM jobs WHERE rrule LIKE 'FREQ=WEEKLY%'"), "the job")
    assert (stored[0]["status"], stored[0]["timezone"]) == ("pending", "Europe/Berlin")


def test_the_readmes_five_lines_for_a_cron_user(sidecar, host, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    old, new = cache / "old", cache / "new"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    code = next(each for each in re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL) if "cron=" in each)
    assert len(code.splitlines()) == 5
    code = code.replace(ADDRESS, sidecar.up().amqp_url).replace("/var/tmp/cache", str(cache))
    env = os.environ | sidecar.env | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "METRICS_PORT": "0",
        "METRICS_HOST": "127.0.0.1",
    }
    shell_line = ["/bin/sh", "-ec", f"{code}\nwait"]
    with subprocess.Popen(shell_line, cwd=tmp_path, env=env, start_new_session=True) as shell:
        try:
            [job] = until(lambda: sidecar.sql("SELECT id FROM jobs"), "the job stored")
            host.publish("trigger", {"id": job["id"]})  # rather than wait for five minutes
            # Every five minutes it runs by itself too.
            run = until(lambda: sidecar.sql("SELECT * FROM run_history"), "the run's end")[0]
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait(DEADLINE)
    assert (run["status"], run["output"]["exit_code"]) == ("succeeded", 0)
    assert [each.name for each in cache.iterdir()] == ["new"]
