"""A terminal for commands in tests."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios

from support import DEADLINE

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_", "AMQP_"))}
_FROM_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR")


def on_a_terminal(database_url: str, *arguments: str, answer: str = "", columns: int = 80) -> tuple[int, str]:
    """Run a command on a terminal with typed input; return its exit code and output, with its colours."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    env = {name: value for name, value in CLEAN.items() if name not in _FROM_TERMINAL} | {"TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-m", "scheduler", *arguments], stdin=its, stdout=its, stderr=its,
                               env=env | {"DATABASE_URL": database_url})
    os.close(its)
    os.write(ours, answer.encode())
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):  # its end, on Linux
        while more := terminal.read(4096):
            shown += more
    return process.wait(DEADLINE), shown.decode()


def without_colours(text: str) -> str:
    """Return the text without its styles, as wide as a person sees it."""
    return re.sub(r"\x1b\[[0-9]*m", "", text)
