"""The table of tested versions in docs/compatibility.md, written by `make test RECORD=yes`."""
# ruff: noqa: S603 - the server programs that the tests use

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from scheduler.dev.servers.binaries import RabbitBinaries, find_postgres, find_rabbitmq

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
VARIABLE = "RECORD"
BEGIN, END = "<!-- runs: written by make test RECORD=yes -->", "<!-- end of runs -->"
HEAD = ("RabbitMQ", "Erlang", "Postgres", "Python", "machine, user", "tests", "passed", "failed", "skipped", "run")
_KEY = 6  # columns that name a run; a later run of the same replaces it


def servers() -> tuple[str, str, str]:
    """Return the versions of RabbitMQ, Erlang and Postgres that the tests start."""
    rabbitmq, postgres = find_rabbitmq(), find_postgres()
    if rabbitmq is None or postgres is None:
        return ("?", "?", "?")
    return (_rabbitmq_version(rabbitmq), _erlang_version(rabbitmq), _postgres_version(postgres))


def row(servers: Sequence[str], tests: Sequence[str], outcomes: Mapping[str, int], commit: str) -> tuple[str, ...]:
    """Return the cells of a run; `outcomes` are pytest's counts."""
    failed = outcomes.get("failed", 0) + outcomes.get("error", 0)
    selection = " ".join(f"`{os.path.relpath(test, ROOT)}`" for test in tests)
    return (
        *servers, platform.python_version(),
        f"{_system()}, {'root' if os.geteuid() == 0 else 'ordinary user'}", selection,
        f"{outcomes.get('passed', 0):,}", str(failed), str(outcomes.get("skipped", 0)),
        f"{datetime.now(UTC):%Y-%m-%d}, {commit}",
    )


def record(cells: Sequence[str], page: Path = PAGE) -> None:
    """Put a run into the page's table, in place of an earlier one of the same versions and tests."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    table, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no markers for the runs: {BEGIN} … {END}")
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    line = _line(cells)
    rows = sorted([old for old in rows if _key(old) != _key(line)] + [line], key=_in_order)
    lines = [_line(HEAD), "|" + " --- |" * len(HEAD), *rows]
    page.write_text("\n".join([before + begin, "", *lines, "", end + after]), encoding="utf-8")


def commit() -> str:
    """Return the commit, marked if tracked files other than the page have changed since."""
    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{PAGE.relative_to(ROOT)}")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _key(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")[:_KEY]]


def _in_order(line: str) -> list[object]:
    versions = [tuple(map(int, re.findall(r"\d+", cell))) for cell in _key(line)[:4]]
    return [*versions, *_key(line)[4:]]


def _system() -> str:
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        return platform.system()
    version = about.get("VERSION_ID") or about.get("VERSION_CODENAME", "")
    return f"{about['NAME'].removesuffix(' GNU/Linux')} {version}".strip()


def _rabbitmq_version(binaries: RabbitBinaries) -> str:
    [application, *_] = sorted((binaries.scripts.resolve().parent / "plugins").glob("rabbit-[0-9]*"))
    return application.name.removeprefix("rabbit-").removesuffix(".ez")


def _erlang_version(binaries: RabbitBinaries) -> str:
    erlang = next(folder for folder in binaries.epmd.resolve().parents if (folder / "releases").is_dir())
    versions = [path.read_text(encoding="ascii").strip() for path in erlang.glob("releases/*/OTP_VERSION")]
    return max(versions, key=lambda text: [int(part) for part in re.findall(r"\d+", text)])


def _postgres_version(folder: Path) -> str:
    done = subprocess.run([str(folder / "postgres"), "--version"], capture_output=True, text=True, check=True)
    return str(re.findall(r"\d+[\d.]*", done.stdout)[0])
