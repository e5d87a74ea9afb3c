"""Helpers for the verbs: caller, confirmation, progress and tables."""

import getpass
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from scheduler.cli.terminal import plain
from scheduler.commands import bulk_commands
from scheduler.domain.caller import Caller, Via
from scheduler.postgres.connection import Connection, connect
from scheduler.settings import Settings

_LEAST_CELL = 8


def cli_caller() -> Caller:
    """Return the operating system's user for the audit log."""
    try:
        return Caller(plain(getpass.getuser(), 200), Via.CLI)
    except (KeyError, OSError):
        return Caller(None, Via.CLI)  # a user id without a name, as in many containers


def wake_horizon(settings: Settings) -> timedelta:
    """Return how far ahead a due time needs a wakeup: producers poll for later ones."""
    return timedelta(milliseconds=settings.poll_interval_ms + 100)


@contextmanager
def open_connection(settings: Settings, name: str) -> Iterator[Connection]:
    """Open a connection; raises Unavailable if the database cannot be reached."""
    connection = connect(settings.database_url, name)
    try:
        yield connection
    finally:
        connection.close()


def confirm(action: str, *, yes: bool) -> str | None:
    """Ask for confirmation on the terminal; return an error text without it."""
    if yes:
        return None
    if not sys.stdin.isatty():
        return f"to {action} cannot be undone: pass --yes to confirm"
    print(f"To {action} cannot be undone. Continue? [y/N] ", end="", flush=True, file=sys.stderr)
    return None if sys.stdin.readline().strip().lower() in ("y", "yes") else "aborted"


def run_in_batches(connection: Connection, step: bulk_commands.Step) -> int:
    """Run the step until it is done, with progress on a terminal; Ctrl-C stops between two batches."""
    progress = bulk_commands.BulkProgress()
    show_progress = sys.stderr.isatty()
    while not progress.done:
        progress = step(connection, progress)
        if show_progress:
            print(f"\r{progress.matched:,} so far", end="", flush=True, file=sys.stderr)
    if show_progress:
        print("\r\x1b[K", end="", flush=True, file=sys.stderr)
    return progress.matched


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines that fit the terminal; the widest columns are truncated."""
    cells = [head, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    if sys.stdout.isatty():
        available = shutil.get_terminal_size().columns - 2 * (len(head) - 1)
        while sum(widths) > available and max(widths) > _LEAST_CELL:
            widths[widths.index(max(widths))] -= 1
    return ["  ".join(plain(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells]
