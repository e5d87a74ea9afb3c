"""Matches a job's arguments against the operator's `argument_pattern`, in bounded time.

Python's `re` cannot be interrupted, and some patterns take exponential time on some texts. So the match is made in
a forked process that a limit of CPU time ends.
"""

import os
import re
import resource
import signal
from collections.abc import Sequence

CHECK_SECONDS = 2
MOST_CHARACTERS = 10_000  # of one argument that is matched
_MATCHED, _FAILED = 0, 1


def argument_problem(pattern: str | None, arguments: Sequence[str]) -> str | None:
    """Return what is wrong with the arguments; None if each matches as a whole."""
    if pattern is None or not arguments:
        return None
    if any(len(each) > MOST_CHARACTERS for each in arguments):
        return f"an argument has more than {MOST_CHARACTERS:,} characters, too many for argument_pattern"
    pid = os.fork()
    if pid == 0:
        _match(pattern, arguments)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return f"matching the arguments with argument_pattern took more than {CHECK_SECONDS} s of CPU time"
    if os.WEXITSTATUS(status) == _MATCHED:
        return None
    return "an argument does not match the command's argument_pattern"


def _match(pattern: str, arguments: Sequence[str]) -> None:
    """Match in this freshly forked process and exit with the outcome; never returns."""
    code = _FAILED
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (CHECK_SECONDS, CHECK_SECONDS + 1))
        matches = re.compile(pattern).fullmatch
        code = _MATCHED if all(matches(each) for each in arguments) else _FAILED
    finally:
        os._exit(code)
