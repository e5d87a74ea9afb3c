"""The examples are programs that work: each is run, as a host would run it, against the real sidecar."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from node_support import node, npm_install
from support import Host, Sidecar

EXAMPLES = Path(__file__).parents[2] / "examples"
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
            command, cwd=cwd, capture_output=True, text=True, check=False, timeout=90,
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


def test_a_node_program(run, tmp_path):
    folder = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    npm_install(folder)
    printed = run(node(), "index.js", cwd=folder)
    assert re.search(f"accepted .*\n{DUE}", printed)
