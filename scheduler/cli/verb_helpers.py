"""What the verbs share: who runs them, a question before what cannot be undone, progress, and tables."""

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
    """Return who runs this, as the audit tells it."""
    try:
        return Caller(plain(getpass.getuser(), 200), Via.CLI)
    except (KeyError, OSError):
        return Caller(None, Via.CLI)  # a user without a name, as in many a container


def wake_horizon(settings: Settings) -> timedelta:
    """Return for what producers are woken: they look by themselves after this."""
    return timedelta(milliseconds=settings.poll_interval_ms + 100)


@contextmanager
def open_connection(settings: Settings, name: str) -> Iterator[Connection]:
    """Lend a connection; raise Unavailable when the database cannot be reached."""
    connection = connect(settings.database_url, name)
    try:
        yield connection
    finally:
        connection.close()


def confirm(what: str, *, yes: bool) -> str | None:
    """Ask before what cannot be undone; return why it is not done."""
    if yes:
        return None
    if not sys.stdin.isatty():
        return f"{what} cannot be undone: say --yes"
    print(f"{what}. This cannot be undone. Go on? [y/N] ", end="", flush=True, file=sys.stderr)
    return None if sys.stdin.readline().strip().lower() in ("y", "yes") else "not done"


def run_in_batches(connection: Connection, step: bulk_commands.Step) -> int:
    """Do all that match, showing on a terminal how far it is; Ctrl-C stops between two batches."""
    progress = bulk_commands.BulkProgress()
    shows = sys.stderr.isatty()
    while not progress.done:
        progress = step(connection, progress)
        if shows:
            print(f"\r{progress.matched:,} so far", end="", flush=True, file=sys.stderr)
    if shows:
        print("\r\x1b[K", end="", flush=True, file=sys.stderr)
    return progress.matched


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines that fit the terminal: the widest columns are cut."""
    cells = [head, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - 2 * (len(head) - 1)
        while sum(widths) > room and max(widths) > _LEAST_CELL:
            widths[widths.index(max(widths))] -= 1
    return ["  ".join(plain(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells]
