"""A private RabbitMQ node: its own ports, data, cookie, password and epmd, on the loopback interface only."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from scheduler.dev.servers import rabbitmq_home
from scheduler.dev.servers.binaries import RabbitBinaries
from scheduler.dev.servers.errors import ServerFailed
from scheduler.dev.servers.ledger import Ledger
from scheduler.dev.servers.ports import LOOPBACK, free_ports
from scheduler.dev.servers.processes import SERVER_DEADLINE, ProcessIdentity, kill_tree, wait_until

_HEADER = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME = b"\x01"
_MANY_CORES = 8
_LOOPBACK_ONLY = "-kernel inet_dist_use_interface {127,0,0,1}"
_NOT_CONNECTED = ("failed to connect", "unable to perform an operation on node")  # of erl_call, and of rabbitmqctl


class RabbitServer:
    """One node; stopped, killed and started again it keeps its ports, its name and its data."""

    user = "scheduler"

    def __init__(
        self,
        ledger: Ledger,
        binaries: RabbitBinaries,
        *,
        name: str = "rabbitmq",
        config: Sequence[str] = (),
        plugins: Sequence[str] = (),
        nodename: str | None = None,
        cookie: str | None = None,
        epmd_port: int | None = None,
    ) -> None:
        self.directory = ledger.directory / name
        self.data = self.directory / "data"
        self.log = self.directory / "output"
        self.config = list(config)  # read at every start, so a caller may change it between two
        self.plugins = tuple(plugins)
        self.nodename = nodename or f"{name}-{secrets.token_hex(3)}@localhost"
        self.cookie = cookie or secrets.token_hex(16)
        self.port, self.dist_port, own_epmd = free_ports(3)
        # Nodes of one cluster find each other through the epmd of the first.
        self.epmd_port = epmd_port or own_epmd
        self._owns_epmd = epmd_port is None
        self._ledger = ledger
        self._binaries = binaries
        self._password = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The administrator's URL of the default vhost."""
        return self.vhost_url("/")

    def vhost_url(self, vhost: str) -> str:
        """The administrator's URL of one vhost."""
        return f"amqp://{self.user}:{self._password}@{LOOPBACK}:{self.port}/{vhost.replace('/', '%2F')}"

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None while it is down."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the broker runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, deadline: float = SERVER_DEADLINE) -> None:
        """Start the node and return when it speaks AMQP."""
        if self.running:
            return
        limit = time.monotonic() + deadline
        if not self.directory.exists():
            rabbitmq_home.prepare(self.directory, self._binaries.scripts, self.plugins, self.cookie)
        self._configure()
        self._start_epmd()
        self._process = self._ledger.spawn(
            [*self._binaries.enter, self.directory / "sbin" / "rabbitmq-server"],
            env=self._environment(),
            output=self.log,
            cwd=self.directory,
            # The data is deleted with the stack: nothing to save.
            stop=signal.SIGKILL,
        )
        self.wait_ready(limit - time.monotonic())

    def stop(self, mode: Literal["fast", "immediate"] = "fast", deadline: float = 60.0) -> None:
        """Shut the node and its epmd down, cleanly or at once."""
        if self._process is not None and self.running and mode == "fast":
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(deadline)
        self.kill()

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start again."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the node, its helpers and its epmd at once, as a power cut would."""
        # The broker first: it would restart a missing epmd.
        for process in (self._process, self._epmd):
            if process is not None and process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    kill_tree(ProcessIdentity.of(process.pid))
                process.wait()

    def wait_ready(self, deadline: float = SERVER_DEADLINE) -> None:
        """Wait until the node answers the AMQP header."""
        limit = time.monotonic() + deadline
        while not self._speaks_amqp():
            if not self.running or time.monotonic() > limit:
                raise ServerFailed(f"RabbitMQ did not start: {self._last_words()}")
            time.sleep(0.05)

    def ctl(self, *arguments: str, deadline: float = SERVER_DEADLINE) -> str:
        """Run `rabbitmqctl` on this node and return what it prints; each call takes most of a second."""
        command = [*self.ctl_command, "--quiet", *arguments]
        return self._insist(lambda: command, "", time.monotonic() + deadline)

    @property
    def ctl_command(self) -> list[str]:
        """The command for this node's `rabbitmqctl`; it needs the node's environment."""
        return [*self._binaries.enter, str(self.directory / "sbin" / "rabbitmqctl")]

    def evaluate(self, expression: str, deadline: float = SERVER_DEADLINE) -> str:
        """Evaluate Erlang inside the node and return the value's text, within milliseconds."""
        # erl_call is a C program that speaks Erlang's distribution. rabbitmqctl boots an Erlang and an Elixir
        # for each call (0.7 s), and with the management plugin a node took 1 s longer to start, 5 s to stop.
        if self._binaries.erl_call is None:
            return self.ctl("eval", f"{expression}.", deadline=deadline).strip()
        output = self._insist(self._erl_call, f"{expression}.\n", time.monotonic() + deadline).strip()
        if not output.startswith("{ok,"):
            raise ServerFailed(f"`{expression}` failed: {output}")
        return output.removeprefix("{ok,").removesuffix("}").strip()

    def _erl_call(self) -> list[str]:
        # By default every erl_call is named `c17`, and with -r names repeat within a second. The node rejects a
        # caller while it knows another one of that name; a busy node even for some time after that one has left.
        name = f"call{secrets.token_hex(6)}"
        return [*self._binaries.enter, str(self._binaries.erl_call), "-h", name, "-sname", self.nodename, "-e"]

    def _insist(self, command: Callable[[], list[str]], text: str, limit: float) -> str:
        while True:
            try:
                return self._run(command(), text, limit - time.monotonic())
            except ServerFailed as error:
                # Nothing was executed, so any command can be retried.
                reached = not any(text in str(error) for text in _NOT_CONNECTED)
                if reached or not self.running or time.monotonic() > limit:
                    raise
            time.sleep(0.1)

    def _run(self, command: list[str], text: str, deadline: float) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - RabbitMQ's own tools
                command,
                env=self._environment(),
                cwd=self.directory,
                input=text,
                capture_output=True,
                text=True,
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ServerFailed(f"`{' '.join(command)}` did not end within {deadline:.0f} s") from error
        if done.returncode != 0:
            raise ServerFailed(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _start_epmd(self) -> None:
        if not self._owns_epmd or (self._epmd is not None and self._epmd.poll() is None):
            return
        # Started by us and not by Erlang, so that we know its pid and can end it.
        address = ("-port", str(self.epmd_port), "-address", LOOPBACK)
        command: list[str | Path] = [*self._binaries.enter, self._binaries.epmd, *address]
        self._epmd = self._ledger.spawn(
            command, env=self._environment(), output=self.log, cwd=self.directory, stop=signal.SIGKILL
        )
        if not wait_until(lambda: _listens(self.epmd_port), SERVER_DEADLINE):
            raise ServerFailed(f"epmd did not start: {self._last_words()}")

    def _configure(self) -> None:
        lines = [f"default_user = {self.user}", f"default_pass = {self._password}", "log.console = false"]
        file = self.directory / "rabbitmq.conf"
        file.touch(mode=0o600)
        file.write_text("\n".join([*lines, *self.config, ""]), encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        # Settings of another node must not leak into this one.
        foreign = ("RABBITMQ_", "ERL_", "NOTIFY_")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        erlang = [_LOOPBACK_ONLY, "-noinput"]
        if (os.cpu_count() or 1) > _MANY_CORES:
            erlang.append(f"+S {_MANY_CORES}:{_MANY_CORES}")
        return {
            **environment,
            **rabbitmq_home.environment(self.directory),
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": self.nodename,
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            # The script then execs the broker instead of supervising it; `-noinput` reverts the other effects.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(erlang),
            "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK_ONLY,
        }

    def _speaks_amqp(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=20) as link:
                link.sendall(_HEADER)
                return link.recv(1) == _METHOD_FRAME
        except OSError:
            return False

    def _last_words(self) -> str:
        logs = [self.log, *sorted((self.directory / "log").glob("*.log"))]
        texts = [log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists()]
        return "\n".join(line for text in texts for line in text.splitlines()[-10:])


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=20).close()
    except OSError:
        return False
    return True
