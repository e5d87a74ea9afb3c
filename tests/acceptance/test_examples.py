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
ROOT = EXAMPLES.parent
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
    assert re.search(f"requested .*\n{DUE}", printed)


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


def block(page, language, containing=""):
    """Return the first code block of a page in that language that contains a text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(f"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return next(code for code in blocks if containing in code)


def run_block(sidecar, *command, cwd=None):
    """Run a program that reads AMQP_URL and ends without help; return its output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=5 * DEADLINE,
                          env=os.environ | {"AMQP_URL": sidecar.amqp_url})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readmes_example(sidecar):
    printed = run_block(sidecar.up(), sys.executable, "-c", block("README.md", "python"))
    assert printed == "reminder sent for invoice 42\n"
    [row] = until(lambda: sidecar.sql("SELECT * FROM run_history"), "the run's end")
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["failed", "succeeded"]
    assert (row["status"], row["attempts"][1]["output"]) == ("succeeded", '{"sent":true}')
    assert "ConnectionError: mail server unavailable" in row["attempts"][0]["error"]


def test_the_request_in_plain_pika(sidecar):
    printed = run_block(sidecar.up(), sys.executable, "-c", block("docs/messages.md", "python"))
    assert "'payload': {'invoice': 42}" in printed


def test_the_request_in_node(sidecar, node_folder):
    printed = run_block(sidecar.up(), node(), "-e", block("docs/messages.md", "js"), cwd=node_folder)
    assert "payload: { invoice: 42 }" in printed


def test_the_lines_for_a_cron_user(sidecar, host, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    old, new = cache / "old", cache / "new"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    sidecar.up()
    code = block("docs/commands.md", "sh", "cron=").replace("/var/tmp/cache", str(cache))
    *lines, stop = code.splitlines()
    assert stop.startswith("kill $WORKER")
    env = os.environ | sidecar.env | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "METRICS_HOST": "127.0.0.1",
    }
    shell_line = ["/bin/sh", "-ec", "\n".join([*lines, "wait"])]
    with subprocess.Popen(shell_line, cwd=tmp_path, env=env, start_new_session=True) as shell:
        try:
            [job] = until(lambda: sidecar.sql("SELECT id FROM jobs"), "the job stored")
            host.publish("trigger", {"id": job["id"]})  # rather than wait for five minutes
            # It also runs every five minutes.
            run = until(lambda: sidecar.sql("SELECT * FROM run_history"), "the run's end")[0]
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait(DEADLINE)
    assert (run["status"], run["output"]["exit_code"]) == ("succeeded", 0)
    assert [path.name for path in cache.iterdir()] == ["new"]
