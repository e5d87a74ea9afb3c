"""`scheduler dev` as the first hour needs it: private, with addresses to paste, and gone without a trace."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import jwt
import psutil
import psycopg2
import pytest
from support import DEADLINE, Host, iso, until, utc
from test_examples import block

from scheduler.rabbit import topology

COMMAND = [sys.executable, "-m", "scheduler", "dev"]
SERVERS = ("DATABASE_URL", "DATABASE_URL_FILE", "AMQP_URL", "AMQP_URL_FILE")
CLEAN = {name: value for name, value in os.environ.items() if name not in SERVERS} | {"API_PORT": "0"}
LAST_LINE = "requested  sample.report"


@contextmanager
def dev(*options, **environment):
    """Run `scheduler dev`; yield its process and the lines up to the last request."""
    process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=CLEAN | environment)
    try:
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if LAST_LINE in line:
                break
        assert LAST_LINE in lines[-1], "\n".join(lines)
        yield process, lines
    finally:
        process.terminate()
        process.communicate(timeout=2 * DEADLINE)


def exports(lines):
    """Return the variables of the banner's lines, as a shell reads them."""
    return dict(shlex.split(line)[1].split("=", 1) for line in lines if line.startswith("export "))


@pytest.fixture(scope="module")
def shared():
    """One `scheduler dev` for several tests: its process and its first lines."""
    with dev() as started:
        yield started


@pytest.fixture
def running(shared):
    """The exported variables of the shared one."""
    return exports(shared[1])


def test_the_banner_exports_addresses_and_an_admin_token_for_all_tenants(running):
    assert list(running) == ["AMQP_URL", "DATABASE_URL", "API_URL", "TOKEN"]
    psycopg2.connect(running["DATABASE_URL"]).close()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", running["API_URL"])
    request = urllib.request.Request(
        f"{running['API_URL']}/api/v1/jobs", headers={"Authorization": f"Bearer {running['TOKEN']}"})
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        assert {"sample.once", "sample.webhook"} <= {job["job_type"] for job in json.load(answer)["items"]}
    claims = jwt.decode(running["TOKEN"], options={"verify_signature": False})
    assert (claims["role"], claims.get("tenant", "*"), claims["exp"] - claims["iat"]) == ("admin", "*", 86_400)


def test_the_readmes_example_runs_after_the_export_lines(running):
    done = subprocess.run([sys.executable, "-c", block("README.md", "python")], capture_output=True, text=True,
                          check=False, timeout=2 * DEADLINE, env=CLEAN | running)
    assert (done.returncode, done.stdout) == (0, "reminder sent for invoice 42\n"), done.stderr


def test_the_block_to_paste_works_as_it_is(shared, running):
    process, lines = shared
    start = next(number for number, line in enumerate(lines) if line.startswith("export "))
    block_to_paste = "\n".join(lines[start:lines.index("EOF") + 1])
    done = subprocess.run(["sh", "-e", "-c", block_to_paste], capture_output=True, text=True, check=False,
                          timeout=2 * DEADLINE, env=CLEAN)
    assert done.returncode == 0, done.stderr
    assert any(re.search(r"due  my\.first +#1 .*{.hello.: .you.}", line) for line in process.stdout)
    host = Host(running["AMQP_URL"])
    assert [event["job_type"] for event in host.due(1)] == ["my.first"]  # not left to other tests
    host.close()


def test_a_host_receives_all_of_its_events_and_no_sample(running):
    host = Host(running["AMQP_URL"])
    asked = {host.request(run_at=iso(utc())) for _ in range(20)}
    assert {event["job_id"] for event in host.due(20)} == asked
    host.close()


def test_variables_that_name_servers_are_ignored_and_named_without_their_value(empty_database, vhost, tmp_path):
    password = tmp_path / "secret-file"
    password.write_text(vhost)
    with dev(DATABASE_URL=empty_database, AMQP_URL_FILE=str(password), AMQP_URL="amqp://u:hunter2@[broken",
             PGSSLMODE="require", PGHOST="nowhere.invalid") as (_, lines):
        printed = "\n".join(lines)
        assert exports(lines)["DATABASE_URL"] != empty_database
    for name in ("DATABASE_URL", "AMQP_URL", "AMQP_URL_FILE"):
        assert re.search(rf"^· {name} is ignored", printed, re.MULTILINE)
    for value in (empty_database, vhost, "hunter2", str(password)):
        assert value not in printed
    with psycopg2.connect(empty_database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        assert cursor.fetchone() == (0,)
    connection.close()
    assert not topology.declared(vhost)


def test_use_env_uses_the_servers_and_leaves_no_job_that_fires(empty_database, vhost):
    with dev("--use-env", DATABASE_URL=empty_database, AMQP_URL=vhost) as (process, lines):
        assert exports(lines)["DATABASE_URL"] == empty_database
        assert exports(lines)["AMQP_URL"] == vhost
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=2 * DEADLINE)
    with psycopg2.connect(empty_database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT job_type FROM jobs WHERE status NOT IN ('cancelled', 'done')")
        assert cursor.fetchall() == []
    connection.close()


KEY = "correct-horse-battery-staple-and-more"
PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
"""


def test_the_token_is_made_with_the_configured_key(tmp_path):
    file = tmp_path / "key"
    file.write_text(KEY)
    with dev(SCHEDULER_JWT_KEY_FILE=str(file), SCHEDULER_JWT_AUDIENCE="shop") as (_, lines):
        token = exports(lines)["TOKEN"]
        assert jwt.decode(token, KEY, algorithms=["HS256"], audience="shop")["role"] == "admin"
        assert any(re.search(r"Console +http://127\.0\.0\.1:\d+/login/", line) for line in lines)


def test_without_a_signing_key_the_banner_explains_the_missing_token():
    with dev(SCHEDULER_JWT_KEY=PUBLIC) as (_, lines):
        assert list(exports(lines)) == ["AMQP_URL", "DATABASE_URL", "API_URL"]
        assert "  There is no TOKEN: SCHEDULER_JWT_KEY is a public key, which cannot sign a token" in lines


def shared_memory(pids):
    """Return the segments that these processes created."""
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]]
    return {(row[0], row[1]) for row in rows if int(row[4]) in pids}


@pytest.fixture
def temporary():
    """A directory for temporary files that servers with another user id can pass."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, None])
def test_it_leaves_no_process_file_or_shared_memory_behind(how, temporary):
    before = set(Path("/dev/shm").iterdir())
    with dev(*([] if how else ["--for", "6"]), TMPDIR=str(temporary)) as (process, _):
        def family():
            members = psutil.Process(process.pid).children(recursive=True)
            words = [word for member in members if alive(member) for word in member.cmdline()]
            return members if any("report written" in word for word in words) else None

        members = until(family, "the sample command runs")
        segments = shared_memory({member.pid for member in members})
        assert list(temporary.iterdir())
        if how:
            process.send_signal(how)
        process.communicate(timeout=2 * DEADLINE)
    if how != signal.SIGKILL:  # then it is complete when the command returns
        assert not [member for member in members if alive(member)]
        assert not list(temporary.iterdir())
    until(lambda: not [member for member in members if alive(member)], "all processes are gone")
    until(lambda: not list(temporary.iterdir()), "all files are gone")
    assert not segments & shared_memory({member.pid for member in members})
    assert not {path for path in set(Path("/dev/shm").iterdir()) - before if "scheduler" in path.name}


def alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
