"""Keeps other processes of the same user from reading this one's environment and memory."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def forbid_reading() -> None:
    """Make this process non-dumpable, on Linux: /proc/PID/environ and mem, ptrace and core dumps then need root.

    A worker's commands run as the worker's own user by default, and must not find its AMQP password or its secrets.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
