"""Find the server programs on this machine."""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scheduler.dev.servers import roots

# Debian and Ubuntu keep every version side by side; Homebrew and PGDG's RPMs too.
_POSTGRES_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
    "opt/homebrew/opt/postgresql/bin",
    "usr/local/opt/postgresql/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
    "usr/bin",
)
# The scripts inside the package: those in sbin switch to the user `rabbitmq` and use the system's node.
_RABBITMQ_FOLDERS = (
    "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin",
    "usr/lib/rabbitmq/bin",
    "usr/lib64/rabbitmq/lib/rabbitmq_server-*/sbin",
    "opt/rabbitmq/sbin",
    "opt/homebrew/opt/rabbitmq/sbin",
    "usr/local/opt/rabbitmq/sbin",
    "home/linuxbrew/.linuxbrew/opt/rabbitmq/sbin",
)
_ERLANG_FOLDERS = (
    "usr/lib/erlang/erts-*/bin",
    "usr/lib64/erlang/erts-*/bin",
    "opt/homebrew/opt/erlang/lib/erlang/erts-*/bin",
    "usr/local/opt/erlang/lib/erlang/erts-*/bin",
    "usr/local/lib/erlang/erts-*/bin",
)
_OLDEST_POSTGRES = 12


@dataclass(frozen=True, slots=True)
class RabbitBinaries:
    """The scripts of one RabbitMQ and the programs of the Erlang below it."""

    scripts: Path
    epmd: Path
    erl_call: Path | None
    # Command prefix of each program in the root of another suite.
    enter: tuple[str, ...] = ()


def find_postgres(root: Path | None = None, path: str | None = None) -> Path | None:
    """Return the folder that holds `initdb` and `postgres`, the newest version first."""
    if root is None:
        suite = roots.chosen()
        if suite is not None:
            return roots.postgres_programs(suite)
        root = Path("/")
    folders = _newest_first(root, _POSTGRES_FOLDERS)
    on_path = shutil.which("initdb", path=path)
    if on_path:
        # A link in PATH may be in a folder without `postgres`: resolve it.
        folders.append(Path(on_path).resolve().parent)
    for folder in folders:
        version = _version(folder)
        too_old = version and version[0] < _OLDEST_POSTGRES
        if not too_old and (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def find_rabbitmq(root: Path | None = None, path: str | None = None) -> RabbitBinaries | None:
    """Return the locations of RabbitMQ's scripts and Erlang's `epmd`, or None if either is missing."""
    enter: tuple[str, ...] = ()
    if root is None:
        suite = roots.chosen()
        root = suite or Path("/")
        if suite is not None:
            enter, path = tuple(roots.enter(suite)), ""
    folders = _newest_first(root, _RABBITMQ_FOLDERS)
    on_path = shutil.which("rabbitmq-server", path=path)
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    wanted = ("rabbitmq-server", "rabbitmqctl", "rabbitmq-env")
    scripts = next((f for f in folders if all((f / name).exists() for name in wanted)), None)
    epmd = _erlang_program("epmd", root, path)
    if scripts is None or epmd is None:
        return None
    return RabbitBinaries(scripts, epmd, _erlang_program("erl_call", root, path), enter)


def _erlang_program(name: str, root: Path, path: str | None) -> Path | None:
    on_path = shutil.which(name, path=path)
    if on_path:
        return Path(on_path)
    return next((f / name for f in _newest_first(root, _ERLANG_FOLDERS) if (f / name).exists()), None)


def _newest_first(root: Path, patterns: Iterable[str]) -> list[Path]:
    return [folder for pattern in patterns for folder in sorted(root.glob(pattern), key=_version, reverse=True)]


def _version(folder: Path) -> tuple[int, ...]:
    """Read a version out of the folder above `bin`, so that 16 sorts above 9.6."""
    version = re.search(r"(\d+(?:\.\d+)*)", folder.parent.name)
    return tuple(map(int, version[1].split("."))) if version else ()
