"""Chromium for tests and screenshots: the installed one, or one installed like the servers."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from scheduler.dev.servers import apt
from scheduler.dev.servers.errors import ServerFailed

NAMES = ("chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium", "fonts-dejavu-core")
# No sandbox: root in a container has none, and it shows only our pages. No requests to other services.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]


def chromium(say: Callable[[str], None] = print) -> str:
    """Return the path of Chromium; install it if it is missing. Raises ServerFailed."""
    path = _installed()
    if path is not None:
        return path
    if not apt.can_install():
        raise ServerFailed("Chromium is missing. Debian, Ubuntu: sudo apt-get install chromium")
    with (Path(tempfile.gettempdir()) / "scheduler-chromium.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other test processes may install it too
        if _installed() is None:
            apt.install(_PACKAGES, say)
    path = _installed()
    if path is None:
        raise ServerFailed("Chromium was installed but cannot be found")
    return path


def _installed() -> str | None:
    return next((program for program in map(shutil.which, NAMES) if program), None)
