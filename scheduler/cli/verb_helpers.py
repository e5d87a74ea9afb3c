"""Helpers for the verbs: caller, confirmation, progress and tables."""

import getpass
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from scheduler.cli.terminal import coloured, plain, styled
from scheduler.commands import bulk_commands
from scheduler.domain.caller import Caller, Via
from scheduler.postgres.connection import Connection, connect
from scheduler.settings import Settings

# Widths of a table's columns on a narrow terminal. Ids and the names that serve as ids are always whole, so that
# they can be copied.
_IDS = ("ID", "EVENT", "JOB", "CALENDAR")
_MIN_CELL = 8
_LEAST = dict.fromkeys(("DUE", "SINCE", "NEXT RUN"), 17) | {"STATUS": 9}  # the minute of a time
_STATUS_STYLES = {
    "dead": "red", "running": "green", "succeeded": "green", "paused": "yellow", "waiting": "yellow",
    "cancelled": "dim", "done": "dim",
}
_DROPPED_FIRST = ("TENANT", "EMITTED", "RETRIES", "BYTES", "NAME", "ATTEMPT", "WORKER")


def cli_caller() -> Caller:
    """Return the operating system's user for the audit log."""
    try:
        return Caller(plain(getpass.getuser(), 200), Via.CLI)
    except (KeyError, OSError):
        return Caller(None, Via.CLI)  # a user id without a name, as in many containers


def wake_horizon(settings: Settings) -> timedelta:
    """Return the time ahead within which a due time needs a wakeup; producers poll for later ones."""
    return timedelta(milliseconds=settings.poll_interval_ms + 100)


@contextmanager
def open_connection(settings: Settings, name: str) -> Iterator[Connection]:
    """Open a connection; raises Unavailable if the database cannot be reached."""
    connection = connect(settings.database_url, name)
    try:
        yield connection
    finally:
        connection.close()


def confirm(action: str, *, yes: bool, matched: str = "") -> str | None:
    """Ask for confirmation on the terminal; return an error text without it. `matched` says how many match."""
    if yes:
        return None
    if not sys.stdin.isatty():
        return f"{matched}{matched and ': '}pass --yes to {action}; this cannot be undone"
    question = f"{action[0].upper()}{action[1:]}? This cannot be undone. Continue? [y/N] "
    print(f"{matched}{matched and '. '}{question}", end="", flush=True, file=sys.stderr)
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
    """Return lines that fit the terminal: columns are truncated or dropped, except ids."""
    cells = [head, *([plain(cell) for cell in row] for row in rows)]
    widths = {name: max(len(row[column]) for row in cells) for column, name in enumerate(head)}
    if sys.stdout.isatty():
        _fit(widths, shutil.get_terminal_size().columns)
    shown = [(column, widths[name]) for column, name in enumerate(head) if name in widths]
    colour = coloured()

    def line(row: Sequence[str], styles: Sequence[str | None]) -> str:
        texts = [plain(row[column], width).ljust(width) for column, width in shown]
        texts[-1] = texts[-1].rstrip()
        return "  ".join(styled(text, styles[column], colour=colour)
                         for text, (column, _) in zip(texts, shown, strict=True)).rstrip()

    def styles(row: Sequence[str]) -> list[str | None]:
        return [_STATUS_STYLES.get(row[column]) if name == "STATUS" else None for column, name in enumerate(head)]

    return [line(head, ["bold"] * len(head)), *(line(row, styles(row)) for row in cells[1:])]


def _fit(widths: dict[str, int], available: int) -> None:
    """Truncate the widest columns, after dropping those for which there is no room at all."""
    least = {name: width if name in _IDS else min(width, _LEAST.get(name, _MIN_CELL))
             for name, width in widths.items()}
    for name in (*_DROPPED_FIRST, *reversed(list(widths))):
        if sum(least.values()) + 2 * (len(least) - 1) > available and name in least and name not in _IDS:
            del widths[name], least[name]
    while sum(widths.values()) + 2 * (len(widths) - 1) > available and widths != least:
        widest = max((name for name in widths if widths[name] > least[name]), key=lambda name: widths[name])
        widths[widest] -= 1
