"""Install missing servers on Debian and Ubuntu, without starting the services that the packages bring."""
# ruff: noqa: S603, S607 - fixed programs of the system, with arguments of our own

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scheduler.dev.servers.errors import ServerFailed

Say = Callable[[str], None]

_POLICY = Path("/usr/sbin/policy-rc.d")
_UNIT_FOLDERS = (Path("/lib/systemd/system"), Path("/usr/lib/systemd/system"))
_UNITS = (
    "rabbitmq-server.service", "epmd.service", "epmd.socket", "postgresql.service", "prometheus.service",
    "prometheus-node-exporter.service", "prometheus-alertmanager.service",
)
_MARK = "# Written by `scheduler dev` while it installs packages; safe to remove."
_OPTIONS = ("-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300")


def can_install() -> bool:
    """Return whether this is a Debian-like system on which we may install packages."""
    return os.geteuid() == 0 and all(map(shutil.which, ("apt-get", "apt-cache", "dpkg")))


def install(packages: Sequence[str], say: Say) -> None:
    """Install `packages`, leaving every running service alone and starting none."""
    names = " ".join(packages)
    say(f"Installing {names} with apt-get (once; this can take a minute or two)")
    before = {unit for unit in _UNITS if _unit_exists(unit)}
    with services_stay_down():
        if not all(map(_has_candidate, packages)):
            _update(say)
        log, failed = _apt_get(say, "install", *_OPTIONS, *packages)
        if failed:
            # The package lists may be older than the archive they describe.
            _update(say)
            log, failed = _apt_get(say, "install", *_OPTIONS, *packages)
    if failed:
        raise ServerFailed(f"`apt-get install {names}` failed:\n{_tail(log)}")
    _keep_down_at_boot([unit for unit in _UNITS if unit not in before and _unit_exists(unit)])


@contextmanager
def services_stay_down(policy: Path = _POLICY) -> Iterator[None]:
    """Keep package scripts from starting services, with Debian's policy-rc.d, until the end of the block."""
    restore_policy(policy)
    aside = _aside(policy)
    if policy.exists() or policy.is_symlink():
        policy.rename(aside)
    try:
        policy.write_text(f"#!/bin/sh\n{_MARK}\nexit 101\n", encoding="utf-8")
        policy.chmod(0o755)
        yield
    finally:
        restore_policy(policy)


def restore_policy(policy: Path = _POLICY) -> None:
    """Remove the policy file that a killed installation left, and restore the original."""
    if is_leftover(policy):
        policy.unlink()
    aside = _aside(policy)
    if (aside.exists() or aside.is_symlink()) and not policy.exists():
        aside.rename(policy)


def is_leftover(policy: Path = _POLICY) -> bool:
    """Return whether the policy file is a leftover of `services_stay_down`."""
    try:
        return _MARK in policy.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _aside(policy: Path) -> Path:
    return policy.with_name(f"{policy.name}.before-scheduler-dev")


def _update(say: Say) -> None:
    say("Refreshing the package lists (apt-get update)")
    # A failure is not fatal: the existing lists, or the packages in apt's cache, may suffice.
    _apt_get(say, "update", "-q")


def _apt_get(say: Say, *arguments: str) -> tuple[str, bool]:
    # A separate session: Ctrl-C must not interrupt dpkg.
    process = subprocess.Popen(
        ["apt-get", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        log, _ = process.communicate()
    except BaseException:
        say("Letting apt-get finish before stopping, so that no package is left half installed")
        process.communicate()
        raise
    return log, process.returncode != 0


def _has_candidate(package: str) -> bool:
    shown = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False)
    return any(
        line.strip().startswith("Candidate:") and "(none)" not in line for line in shown.stdout.splitlines()
    )


def _unit_exists(unit: str) -> bool:
    return any((folder / unit).exists() for folder in _UNIT_FOLDERS)


def _keep_down_at_boot(units: Sequence[str]) -> None:
    # We want the programs, not a broker and a database on the standard ports after the next boot.
    if units and shutil.which("systemctl"):
        subprocess.run(["systemctl", "disable", "--quiet", *units], capture_output=True, check=False)


def _tail(log: str, lines: int = 15) -> str:
    return "\n".join(log.strip().splitlines()[-lines:])
