"""Clean up after the owner of a stack, even if it was killed."""

import subprocess
import sys
from pathlib import Path

from scheduler.dev.servers.ledger import owner_of, sweep_one
from scheduler.dev.servers.processes import SERVER_DEADLINE, wait_until


def start(directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that detects the end of this one by the end of its standard input."""
    # It uses the same import path as this process.
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    return subprocess.Popen(  # noqa: S603 - this very file
        [sys.executable, "-I", "-c", program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def stop(watchdog: subprocess.Popen[bytes]) -> None:
    """End the watchdog of a stack that has been closed."""
    if watchdog.stdin:
        watchdog.stdin.close()
    watchdog.wait()


def main() -> None:
    """Wait for the owner's end, then end its processes and remove its directory."""
    directory = Path(sys.argv[1])
    owner = owner_of(directory)
    sys.stdin.buffer.read()
    # A dying process closes its files a moment before it is gone.
    if owner and wait_until(lambda: not directory.exists() or not owner.alive(), SERVER_DEADLINE):
        sweep_one(directory)
