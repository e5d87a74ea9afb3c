"""Start, watch and stop the processes of `scheduler dev`."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from scheduler.dev.screen import Screen
from scheduler.dev.servers import Stack
from scheduler.domain.errors import Unavailable
from scheduler.processes.roles import ROLES, how_to_install

_START_SECONDS = 180
_API_ONLY = frozenset({"SCHEDULER_JWT_KEY", "SCHEDULER_JWT_KEY_FILE"})
_NEEDS = {"api": "fastapi", "worker": "aiohttp"}  # libraries from optional extras


def roles(screen: Screen) -> list[str]:
    """Return the processes to run. Processes whose libraries are missing are omitted and reported."""
    names = []
    for role in ROLES.values():
        library = _NEEDS.get(role.name)
        if library is not None and importlib.util.find_spec(library) is None:
            screen.say(f"The {role.name} is not started: {library} is missing; {how_to_install(role.name)}")
            continue
        names += [role.name] * role.in_dev
    return names


@contextmanager
def processes(
    stack: Stack, names: list[str], environment: Mapping[str, str], screen: Screen
) -> Iterator[list[dict[str, int]]]:
    """Run processes; when all are up, yield the ports of each: `metrics_port` and `api_port`."""
    screen.say(f"Starting {', '.join(f'{names.count(role)} {role}' for role in dict.fromkeys(names))}")
    running: list[subprocess.Popen[str]] = []
    try:
        for role in names:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "scheduler", role], env=_environment_of(role, environment), text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches only us; we stop them in order
            )
            running.append(process)
            stack.adopt(process.pid)
        yield [_ports(role, process, screen) for role, process in zip(names, running, strict=True)]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _wait(process)


def _environment_of(role: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process; only the API gets the token key."""
    variables = os.environ | dict(environment)
    return {name: value for name, value in variables.items() if role == "api" or name not in _API_ONLY}


def _wait(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ports(role: str, process: subprocess.Popen[str], screen: Screen) -> dict[str, int]:
    """Wait for the ports of a process; show its warnings until it exits."""
    reported: SimpleQueue[dict[str, int] | None] = SimpleQueue()
    threading.Thread(target=_follow, args=(process, reported, screen), daemon=True).start()
    needed = {"metrics_port"} | ({"api_port"} if role == "api" else set())
    ports: dict[str, int] = {}
    try:
        while not needed <= ports.keys():
            update = reported.get(timeout=_START_SECONDS)
            if update is None:
                raise Unavailable(f"the {role} exited while starting; its messages are above")
            ports |= update
    except Empty:
        raise Unavailable(f"the {role} did not start; its messages are above") from None
    return ports


def _follow(
    process: subprocess.Popen[str], reported: "SimpleQueue[dict[str, int] | None]", screen: Screen
) -> None:
    for line in process.stderr or ():
        try:
            entry = json.loads(line)
        except ValueError:
            screen.complain(line.rstrip())
            continue
        ports = {name: entry[name] for name in ("metrics_port", "api_port") if name in entry}
        if ports:
            reported.put(ports)
        if entry["level"] in ("warning", "error"):
            details = entry.get("problem") or entry.get("problems") or ""
            screen.warning(line, f"{entry['process']}: {entry['event']} {details}".rstrip())
    reported.put(None)  # it has exited
