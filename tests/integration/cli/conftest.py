"""The command line in a separate process."""

import subprocess
import sys

import pytest
from support import DEADLINE
from terminal_support import CLEAN


@pytest.fixture
def scheduler(database_url, request):
    amqp_url = request.getfixturevalue("amqp_url") if "host" in request.fixturenames else "amqp://127.0.0.1:1"

    def run(*arguments, database=database_url, **env):
        return subprocess.run(
            [sys.executable, "-m", "scheduler", *map(str, arguments)], capture_output=True, text=True,
            env=CLEAN | {"DATABASE_URL": database, "AMQP_URL": amqp_url} | env, timeout=DEADLINE, check=False,
            stdin=subprocess.DEVNULL,
        )

    return run
