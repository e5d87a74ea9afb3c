"""Servers of another Debian suite, in a root that debootstrap makes once: `make test SERVERS=sid`."""
# ruff: noqa: S603, S607 - fixed programs of the system, with our own arguments

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from scheduler.dev.servers import apt
from scheduler.dev.servers.errors import ServerFailed
from scheduler.dev.servers.ledger import exclusive

SUITES = ("bookworm", "trixie", "sid")
VARIABLE = "SERVERS"
_PACKAGES = ("rabbitmq-server", "postgresql", "locales")
_SHARED = ("proc", "dev", "tmp", "var/tmp")
_INSIDE = Path(__file__).with_name("inside.py")
_SOURCES = Path("/etc/apt")


def cache() -> Path:
    """Return the folder of the roots; only an administrator can create one."""
    return Path("/var/cache/scheduler-roots")


def chosen(environment: Mapping[str, str] = os.environ, say: apt.Say = lambda _: None) -> Path | None:
    """Return the root of the suite that the environment names, created on first use; None means this machine."""
    suite = environment.get(VARIABLE)
    if not suite:
        return None
    if suite not in SUITES:
        raise ServerFailed(f"{VARIABLE}={suite} is unknown: expected one of {', '.join(SUITES)}")
    root = cache() / suite
    if not _complete(root):
        if not apt.can_install():
            raise ServerFailed(f"{root} does not exist: run the same command once as root on Debian or Ubuntu")
        cache().mkdir(parents=True, exist_ok=True)
        with exclusive(cache() / f"{suite}.lock"):
            if not _complete(root):
                _make(suite, root, say)
    return root


def enter(root: Path) -> list[str]:
    """Return the command prefix for programs in the root; append the program's path."""
    return ["/usr/bin/python3", "-I", str(_INSIDE), str(root)]


def postgres_programs(root: Path) -> Path:
    """Return a folder of scripts that run the root's Postgres programs, each under its own name."""
    return root.with_name(f"{root.name}-programs")


def mirror(sources: Path = _SOURCES) -> str:
    """Return the Debian mirror that apt uses on this machine."""
    for path in sorted([*sources.glob("sources.list.d/*.sources"), *sources.glob("**/*.list")]):
        for address in re.findall(r"^(?:URIs:|deb(?: \[.*?\])?)\s+(\S+)", path.read_text("utf-8"), re.MULTILINE):
            if address.rstrip("/").endswith("/debian"):
                return str(address)
    return "http://deb.debian.org/debian"


def _complete(root: Path) -> bool:
    return (postgres_programs(root) / "initdb").exists()


def _make(suite: str, root: Path, say: apt.Say) -> None:
    if shutil.which("debootstrap") is None:
        apt.install(["debootstrap"], say)
    say(f"Making a root with the servers of Debian {suite} in {root} (once; about a minute)")
    shutil.rmtree(root, ignore_errors=True)
    include = ",".join(_PACKAGES)
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", "--no-check-gpg", f"--include={include}", suite, str(root), mirror()],
        capture_output=True, text=True, check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"debootstrap {suite} failed:\n" + "\n".join(done.stdout.splitlines()[-10:]))
    for folder in (*_SHARED, str(root).lstrip("/")):
        (root / folder).mkdir(parents=True, exist_ok=True)
    _write_programs(root)


def _write_programs(root: Path) -> None:
    """Postgres's programs are called by name from many places; each gets a script that enters the root."""
    programs = postgres_programs(root)
    programs.mkdir(exist_ok=True)
    [folder] = root.glob("usr/lib/postgresql/*/bin")
    names = sorted((path.name for path in folder.iterdir()), key=lambda name: name == "initdb")  # last: the mark
    for name in names:
        script = programs / name
        command = " ".join((*enter(root), str(folder / name)))
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
