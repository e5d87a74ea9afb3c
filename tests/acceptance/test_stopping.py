"""SIGTERM while the name of a server cannot be looked up: the C library cannot be interrupted there."""

import os
import random
import socket
import subprocess
import sys
import threading

import pytest
from support import Process, until

# Operations with timeouts wait forever here: only the stop itself ends the process.
PATIENT = """
from scheduler import cli
from scheduler.processes import runtime
runtime.GRACE_SECONDS = 1e6
raise SystemExit(cli.main())
"""
MOUNT = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
PRIVATE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


class SilentResolver:
    """A name server that takes every question and answers none."""

    def __init__(self, directory):
        self.address = ".".join(map(str, (127, *(random.randint(1, 254) for _ in range(3)))))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.address, 53))
        self._questions = b""
        self._conf = directory / "resolv.conf"
        self._conf.write_text(f"nameserver {self.address}\noptions timeout:30 attempts:5\n")
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self):
        while question := self._socket.recv(4096):
            self._questions += question

    def asked(self, name):
        return bytes([len(name)]) + name.encode() in self._questions

    def command(self):
        """Return the environment of a process that connects to no other server."""
        return [*PRIVATE, "sh", "-c", MOUNT, str(self._conf), sys.executable, "-c", PATIENT]

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", (self.address, 53))
        self._thread.join()
        self._socket.close()


@pytest.fixture
def resolver(tmp_path):
    if subprocess.run([*PRIVATE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a private mount namespace")
    try:
        started = SilentResolver(tmp_path)
    except PermissionError:
        pytest.skip("needs the name service's port")
    yield started
    started.close()


def test_a_stop_does_not_wait_for_name_resolution(resolver, database_url, vhost):
    gone = "postgresql://u:p@{}.example/x"
    started = {
        role: Process(role.split("-")[0], env, command=resolver.command())
        for role, env in {
            "producer-db": {"DATABASE_URL": gone.format("producer-db"), "AMQP_URL": vhost},
            "consumer-db": {"DATABASE_URL": gone.format("consumer-db"), "AMQP_URL": vhost},
            "producer-mq": {"DATABASE_URL": database_url, "AMQP_URL": "amqp://u:p@producer-mq.example"},
            "migrate-db": {"DATABASE_URL": gone.format("migrate-db")},
        }.items()
    }
    try:
        for role, process in started.items():
            until(lambda role=role: resolver.asked(role), f"{role} asked for its server: {process.raw}")
        started["producer-db"].logged("connected to RabbitMQ")
        codes = {role: process.stop() for role, process in started.items()}
        assert codes == {"producer-db": 0, "consumer-db": 0, "producer-mq": 0, "migrate-db": 69}
        for role in ("producer-db", "consumer-db", "producer-mq"):
            assert started[role].logged("stopped")
    finally:
        for process in started.values():
            process.kill()
