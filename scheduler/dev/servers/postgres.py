"""A private Postgres: its own port, data directory and password, on the loopback interface only."""

import contextlib
import os
import pwd
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psycopg2

from scheduler.dev.servers.errors import ServerFailed
from scheduler.dev.servers.ledger import Account, Ledger
from scheduler.dev.servers.ports import LOOPBACK, free_ports
from scheduler.dev.servers.processes import SERVER_DEADLINE, ProcessIdentity, kill_tree

Mode = Literal["smart", "fast", "immediate"]
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_USER = "scheduler"
_DEFAULTS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Segments in /dev/shm would outlive a killed server.
    "dynamic_shared_memory_type": "mmap",
}
# For tests without power loss: commits need not reach the disk.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresServer:
    """One server; stopped, killed and started again it keeps its port and its data."""

    def __init__(
        self,
        ledger: Ledger,
        binaries: Path,
        *,
        name: str = "postgres",
        settings: Mapping[str, str] | None = None,
        fast: bool = False,
    ) -> None:
        self.directory = ledger.directory / name
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        # Read at every start, so a caller may change it between two.
        self.settings = {**_DEFAULTS, **(_FAST if fast else {}), **(settings or {})}
        self.port = free_ports(1)[0]
        self._ledger = ledger
        self._binaries = binaries
        self._account = _account()
        self._password = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The superuser's URL of the maintenance database."""
        return f"postgresql://{_USER}:{self._password}@{LOOPBACK}:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, or None while the server is down."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the postmaster runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, deadline: float = SERVER_DEADLINE) -> None:
        """Start the server, on first use with a new data directory, and return when it responds."""
        if self.running:
            return
        limit = time.monotonic() + deadline
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        self._configure()
        self._process = self._ledger.spawn(
            [self._binaries / "postgres", "-D", self.data],
            env=_environment(),
            output=self.log,
            account=self._account,
            cwd=self.directory,
            # The directory is deleted, so no checkpoint is needed; SIGQUIT frees the shared memory.
            stop=signal.SIGQUIT,
        )
        self.wait_ready(limit - time.monotonic())

    def stop(self, mode: Mode = "fast", deadline: float = 60.0) -> None:
        """Shut the server down in one of Postgres's three modes, and wait for its end."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(_SIGNALS[mode])
        try:
            self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start again."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the postmaster and all its backends at once, as a power cut would."""
        if self._process is None or not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            kill_tree(ProcessIdentity.of(self._process.pid))
        self._process.wait()

    def wait_ready(self, deadline: float = SERVER_DEADLINE) -> None:
        """Wait until the server takes connections."""
        limit = time.monotonic() + deadline
        while True:
            try:
                psycopg2.connect(self.url, connect_timeout=20).close()
            except psycopg2.OperationalError as error:
                if not self.running or time.monotonic() > limit:
                    raise ServerFailed(f"Postgres did not start: {_tail(self.log)}") from error
                time.sleep(0.05)
            else:
                return

    def _initialize(self) -> None:
        self.directory.mkdir(mode=0o700)
        secret = self.directory / "password"
        secret.write_text(self._password, encoding="ascii")
        secret.chmod(0o600)
        if self._account:
            for path in (self.directory, secret):
                os.chown(path, self._account.uid, self._account.gid)
        options = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        who = ["-U", _USER, f"--pwfile={secret}"]
        command = [str(self._binaries / "initdb"), "-D", str(self.data), *who, *options]
        process = self._ledger.spawn(
            command, env=_environment(), output=self.log, account=self._account, cwd=self.directory
        )
        if process.wait() != 0:
            raise ServerFailed(f"initdb failed: {_tail(self.log)}")
        secret.unlink()
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write("\ninclude 'scheduler.conf'\n")

    def _configure(self) -> None:
        settings = {**self.settings, "port": str(self.port)}
        lines = [f"{key} = '{value.replace(chr(39), chr(39) * 2)}'\n" for key, value in settings.items()]
        file = self.data / "scheduler.conf"
        file.write_text("".join(lines), encoding="utf-8")
        if self._account:
            os.chown(file, self._account.uid, self._account.gid)


def _account() -> Account | None:
    """Return the account for Postgres, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise ServerFailed("Postgres refuses to run as root, and there is no user `postgres` or `nobody`")


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT and similar variables are for other servers.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return {**variables, "LC_ALL": "C"}


def _tail(log: Path) -> str:
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    except OSError as error:
        return str(error)
