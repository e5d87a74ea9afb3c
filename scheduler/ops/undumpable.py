"""Keep other processes of the same user from reading this one's environment and memory."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def make_undumpable() -> None:
    """Make this process non-dumpable on Linux: /proc/PID/environ and mem, ptrace and core dumps need root then.

    By default a worker's commands run as the worker's own user. They must not find its AMQP password or secrets.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
