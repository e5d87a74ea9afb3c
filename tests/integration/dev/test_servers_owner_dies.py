"""After any end of a stack's owner nothing remains of the stack; as root, an ordinary user owns it."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest
from support import DEADLINE

import scheduler
from scheduler.dev.servers.ports import is_free
from scheduler.dev.servers.processes import ProcessIdentity, wait_until

OWNER = """
import json, signal, subprocess, sys
from pathlib import Path
from scheduler.dev.servers import start_stack
# What a shell starts in the background ignores Ctrl-C, and so do its children, this one too.
signal.signal(signal.SIGINT, signal.default_int_handler)
stack = start_stack(root=Path(sys.argv[1]), purpose="owned", fast=True)
ours = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True)
stack.adopt(ours.pid)
facts = {
    "pids": [ours.pid, stack.postgres.pid, stack.rabbitmq.pid, stack.rabbitmq._epmd.pid],
    "ports": [stack.postgres.port, stack.rabbitmq.port, stack.rabbitmq.epmd_port],
    "watchdog": stack._watchdog.pid,
    "directory": str(stack.directory),
}
print(json.dumps(facts), flush=True)
sys.stdin.read()
"""


@dataclass
class Owner:
    process: subprocess.Popen
    servers: list[ProcessIdentity]
    watchdog: ProcessIdentity
    ports: list[int]
    directory: Path

    def left(self, drawn: Sequence[int] = ()) -> bool:
        """Return whether any part of the stack remains, except for ports that another process has chosen since."""
        return (
            any(server.alive() for server in self.servers)
            or not all(is_free(port) for port in self.ports if port not in drawn)
            or self.directory.exists()
        )


class Account:
    """Return this user, or `nobody` if this is root and `nobody` can run Python with our packages."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="scheduler-test-"))
        self.base = self.home / "base"
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        packages = [Path(module.__file__).parents[1] for module in (scheduler, psycopg2)]
        self.environment = {**kept, "HOME": str(self.home), "PYTHONPATH": ":".join(map(str, packages))}
        self.identity, self.executable = {}, sys.executable
        if os.geteuid() == 0:
            self._become_nobody()

    def _become_nobody(self) -> None:
        entry = pwd.getpwnam("nobody")
        os.chown(self.home, entry.pw_uid, entry.pw_gid)
        self.identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        # A virtual environment's Python may live where only root can reach it.
        for self.executable in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            with contextlib.suppress(OSError):
                probe = self.python("import scheduler.dev.servers")
                probe.communicate()
                if probe.returncode == 0:
                    return
        os.chown(self.home, 0, 0)
        self.identity, self.executable = {}, sys.executable

    def python(self, code: str, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self.executable, "-c", code, *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **self.identity,
        )

    def own_a_stack(self) -> Owner:
        process = self.python(OWNER, str(self.base))
        line = process.stdout.readline()
        assert line, f"the stack did not start: {process.wait()}"
        facts = json.loads(line)
        return Owner(
            process,
            [ProcessIdentity.of(pid) for pid in facts["pids"]],
            ProcessIdentity.of(facts["watchdog"]),
            facts["ports"],
            Path(facts["directory"]),
        )


@pytest.fixture
def account():
    account = Account()
    yield account
    assert list(account.home.iterdir()) == [], "a stack left something behind"
    shutil.rmtree(account.home)


def end(owner: Owner, signum: int) -> None:
    owner.process.send_signal(signum)
    owner.process.communicate()


def test_a_killed_owners_stack_goes_by_itself_or_at_the_next_start(account):
    first = account.own_a_stack()
    os.kill(first.watchdog.pid, signal.SIGKILL)  # the worst case: no one is left to clean up
    end(first, signal.SIGKILL)
    assert all(server.alive() for server in first.servers)

    second = account.own_a_stack()
    assert not first.left(second.ports)
    assert all(server.alive() for server in second.servers)

    end(second, signal.SIGKILL)
    assert wait_until(lambda: not second.left() and not second.watchdog.alive(), DEADLINE)


def test_an_owner_ended_by_sigterm_takes_its_stack_along(account):
    owner = account.own_a_stack()
    end(owner, signal.SIGTERM)
    assert wait_until(lambda: not owner.left() and not owner.watchdog.alive(), DEADLINE)


def test_ctrl_c_while_the_servers_start_leaves_nothing(account):
    process = account.python(OWNER, str(account.base))

    def servers_are_coming() -> bool:
        records = list(account.base.glob("*/stack.json"))
        return any(len(json.loads(record.read_text())["processes"]) > 1 for record in records)

    assert wait_until(servers_are_coming, DEADLINE)
    (record,) = account.base.glob("*/stack.json")
    started = [ProcessIdentity(pid, start) for pid, start, _ in json.loads(record.read_text())["processes"]]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode != 0
    assert wait_until(lambda: not any(who.alive() for who in started) and not account.base.exists(), DEADLINE)
