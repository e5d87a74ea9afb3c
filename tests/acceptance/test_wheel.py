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
def installed(tmp_path_factory):
    """The `scheduler` command of an environment that has our wheel and, from outside, only its dependencies."""
    where = tmp_path_factory.mktemp("wheel")
    # The source archive, and the wheel from that: what either lacks, the program lacks.
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", where, ROOT], check=True, capture_output=True
    )
    assert [path.name for path in where.glob("*.tar.gz")] == [f"scheduler-{__version__}.tar.gz"]
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
