"""Chromium for tests and pictures: what is on this machine, or else installed as the servers are."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from scheduler.dev.servers import apt
from scheduler.dev.servers.errors import ServerFailed

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium", "fonts-dejavu-core")
# No sandbox: as root in a container there is none, and the pages are our own. And no word to anybody outside.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]


def chromium(say: Callable[[str], None] = print) -> str:
    """Return the path of a Chromium, installed where it is missing; raise ServerFailed where that cannot be."""
    found = _found()
    if found is not None:
        return found
    if not apt.can_install():
        raise ServerFailed("Chromium is missing. Debian, Ubuntu: sudo apt-get install chromium")
    with (Path(tempfile.gettempdir()) / "scheduler-chromium.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other test processes want the same
        if _found() is None:
            apt.install(_PACKAGES, say)
    found = _found()
    if found is None:
        raise ServerFailed("Chromium was installed, and cannot be found")
    return found


def _found() -> str | None:
    return next((path for path in map(shutil.which, _NAMES) if path), None)
