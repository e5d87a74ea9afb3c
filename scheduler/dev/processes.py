"""The processes that `scheduler dev` runs: started together, watched, and stopped in order."""

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
_FOR_THE_API = frozenset({"SCHEDULER_JWT_KEY", "SCHEDULER_JWT_KEY_FILE"})
_NEEDS = {"api": "fastapi", "worker": "aiohttp"}  # what a plain installation may lack


def roles(screen: Screen) -> list[str]:
    """Return the processes to run; one whose libraries are missing is left out, and that is said."""
    found = []
    for role in ROLES.values():
        library = _NEEDS.get(role.name)
        if library is not None and importlib.util.find_spec(library) is None:
            screen.say(f"Without {library} there is no {role.name}: {how_to_install(role.name)}")
            continue
        found += [role.name] * role.in_dev
    return found


@contextmanager
def processes(
    stack: Stack, wanted: list[str], environment: Mapping[str, str], screen: Screen
) -> Iterator[list[dict[str, int]]]:
    """Run these; yield for each, once all are up, the ports that it listens on: `metrics_port`, `api_port`."""
    screen.say(f"Starting {', '.join(f'{wanted.count(role)} {role}' for role in dict.fromkeys(wanted))}")
    running: list[subprocess.Popen[str]] = []
    try:
        for role in wanted:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "scheduler", role], env=_environment_of(role, environment), text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches us alone; we stop them in order
            )
            running.append(process)
            stack.adopt(process.pid)
        yield [_ports(role, process, screen) for role, process in zip(wanted, running, strict=True)]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _wait(process)


def _environment_of(role: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: the key of the tokens is for the API alone."""
    whole = os.environ | dict(environment)
    return {name: value for name, value in whole.items() if role == "api" or name not in _FOR_THE_API}


def _wait(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ports(role: str, process: subprocess.Popen[str], screen: Screen) -> dict[str, int]:
    """Wait until the process serves; go on showing its warnings."""
    told: SimpleQueue[dict[str, int]] = SimpleQueue()
    threading.Thread(target=_follow, args=(process, told, screen), daemon=True).start()
    needed = {"metrics_port"} | ({"api_port"} if role == "api" else set())
    found: dict[str, int] = {}
    try:
        while not needed <= found.keys():
            found |= told.get(timeout=_START_SECONDS)
    except Empty:
        raise Unavailable(f"the {role} did not start; its messages are above") from None
    return found


def _follow(process: subprocess.Popen[str], told: "SimpleQueue[dict[str, int]]", screen: Screen) -> None:
    for line in process.stderr or ():
        try:
            entry = json.loads(line)
        except ValueError:
            screen.complain(line.rstrip())
            continue
        ports = {name: entry[name] for name in ("metrics_port", "api_port") if name in entry}
        if ports:
            told.put(ports)
        if entry["level"] in ("warning", "error"):
            details = entry.get("problem") or entry.get("problems") or ""
            screen.warning(line, f"{entry['process']}: {entry['event']} {details}".rstrip())
