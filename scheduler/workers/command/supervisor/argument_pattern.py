"""Match a job's arguments against the operator's `argument_pattern`, in bounded time.

Python's `re` cannot be interrupted, and some patterns take exponential time on some strings. So a forked process
with a CPU limit does the matching.
"""

import os
import re
import resource
import signal
from collections.abc import Sequence

CHECK_SECONDS = 2
MAX_CHARACTERS = 10_000  # of one argument
_MATCHED, _FAILED = 0, 1


def argument_problem(pattern: str | None, arguments: Sequence[str]) -> str | None:
    """Return the problem with the arguments; None if each matches as a whole."""
    if pattern is None or not arguments:
        return None
    if any(len(argument) > MAX_CHARACTERS for argument in arguments):
        return f"an argument has more than {MAX_CHARACTERS:,} characters, the limit for argument_pattern"
    pid = os.fork()
    if pid == 0:
        _match(pattern, arguments)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return f"matching argument_pattern took more than {CHECK_SECONDS} s of CPU time"
    if os.WEXITSTATUS(status) == _MATCHED:
        return None
    return "an argument does not match the command's argument_pattern"


def _match(pattern: str, arguments: Sequence[str]) -> None:
    """Match in this forked process and exit with the outcome; never returns."""
    code = _FAILED
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (CHECK_SECONDS, CHECK_SECONDS + 1))
        matches = re.compile(pattern).fullmatch
        code = _MATCHED if all(matches(argument) for argument in arguments) else _FAILED
    finally:
        os._exit(code)
