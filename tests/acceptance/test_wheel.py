"""Installed from a wheel into an empty environment, the program works from any directory."""

import os
import re
import site
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

import psycopg2
import pytest
from support import DEADLINE, Host, Process, iso, until, utc

from scheduler import __version__
from scheduler.processes.roles import ROLES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder that contains our wheel."""
    where = tmp_path_factory.mktemp("wheel")
    # The source archive, and the wheel from that: what either lacks, the program lacks.
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", where, ROOT], check=True, capture_output=True
    )
    assert [path.name for path in where.glob("*.tar.gz")] == [f"scheduler_sidecar-{__version__}.tar.gz"]
    return where


@pytest.fixture(scope="module")
def installed(built):
    """The `scheduler` command of an environment that has our wheel and, from outside, only its dependencies."""
    where = built
    venv.create(where / "venv", with_pip=True)
    python = where / "venv/bin/python"
    wheel = next(where.glob("*.whl"))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    packages = next((where / "venv/lib").glob("python*/site-packages"))
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    origin = subprocess.run([python, "-c", "import scheduler; print(scheduler.__file__)"], cwd=where, text=True,
                            capture_output=True, check=True).stdout
    assert origin.startswith(str(where)), "it must be the wheel's own package that is tested"
    return where / "venv/bin/scheduler"


def test_the_wheel_migrates_and_serves_from_another_directory(installed, empty_database, vhost, tmp_path):
    env = {"DATABASE_URL": empty_database, "AMQP_URL": vhost, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [installed, "migrate"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert "0001_jobs.sql" in done.stdout
    env |= {"SCHEDULER_JWT_KEY": "0123456789abcdef" * 2, "API_PORT": "0"}
    processes = [Process(role, env, command=[str(installed)]) for role in ROLES]
    try:
        for process in processes:
            process.ready()
        host = Host(vhost)
        job = host.request(run_at=iso(utc()))
        assert host.due(1)[0]["job_id"] == job
        host.close()
        assert_the_console_is_whole(processes[-1].logged("serving")["api_port"])
        connection = psycopg2.connect(empty_database)
        with connection.cursor() as cursor:
            def done_in_database():
                cursor.execute("SELECT status FROM jobs WHERE id = %s", (job,))
                connection.commit()
                return cursor.fetchone()[0] == "done"

            until(done_in_database, "the job is done")
        connection.close()
    finally:
        codes = [process.stop() for process in processes]
    assert codes == [0] * len(ROLES)


def assert_the_console_is_whole(port):
    """Its templates and files are in the wheel too."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/login", timeout=DEADLINE) as answer:
        page = answer.read().decode()
    files = re.findall(r"/static/[\w.-]+", page)
    assert len(files) >= 4
    for file in files:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{file}", timeout=DEADLINE) as answer:
            assert answer.read()


def test_the_version_says_what_zone_data_it_has(installed, tmp_path):
    done = subprocess.run([installed, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"scheduler {__version__} (")
    assert "tzdata 20" in done.stdout


@pytest.fixture(scope="module")
def base(built):
    """The folder of commands of an environment that has our wheel with its own requirements, and no extra."""
    venv.create(built / "base", with_pip=True)
    wheel = next(built.glob("*.whl"))
    pip = [built / "base/bin/python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", wheel], check=True)
    return built / "base/bin"


def run_base(folder, *command, **environment):
    return subprocess.run([folder / command[0], *command[1:]], cwd=folder, capture_output=True, text=True,
                          check=False, timeout=DEADLINE, env={"PATH": os.environ["PATH"], **environment})


def test_without_extras_only_what_a_host_needs_is_installed(base):
    listed = run_base(base, "python", "-m", "pip", "list", "--format=freeze").stdout.split()
    names = {line.partition("==")[0].lower() for line in listed} - {"pip", "setuptools"}
    assert {"pika", "pydantic", "tzdata", "scheduler-sidecar"} <= names
    assert names - {"pika", "pydantic", "tzdata", "scheduler-sidecar"} <= {
        "annotated-types", "pydantic-core", "pydantic_core", "typing-extensions", "typing_extensions",
        "typing-inspection"}


def test_without_extras_the_client_preview_and_help_work(base):
    done = run_base(base, "python", "-W", "error", "-c",
                    "from scheduler.client import Outbox, Runner, SchedulerClient, job_id, on_due; "
                    "print(job_id('invoice', 42))")
    assert done.returncode == 0, done.stderr
    done = run_base(base, "scheduler", "preview", "--cron", "0 9 * * *", "--timezone", "UTC", "--count", "2")
    assert (done.returncode, done.stdout.count(" 09:00")) == (0, 2), done.stdout + done.stderr
    for command in ("--help", "migrate --help", "job list --help", "--version", "outbox --sql"):
        done = run_base(base, "scheduler", *command.split())
        assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr


@pytest.mark.parametrize(("command", "extra"), [
    ("migrate", "server"), ("consumer", "server"), ("producer", "server"), ("outbox", "server"), ("top", "server"),
    ("dev", "server"), ("job list", "server"), ("run list", "server"), ("dead list", "server"),
    ("delayed list", "server"), ("api", "api"), ("token --role viewer", "api"), ("worker", "worker"),
    ("webhook test https://example.com/", "worker"),
])
def test_a_command_whose_extra_is_missing_names_it(base, command, extra):
    done = run_base(base, "scheduler", *command.split(), SCHEDULER_JWT_KEY="0123456789abcdef" * 2)
    assert done.returncode == 78, done.stdout + done.stderr
    assert f"pip install 'scheduler-sidecar[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
