"""Chooses ports that no one holds and that no outgoing connection will take."""

import errno
import random
import socket
import sys
from pathlib import Path

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20000, 32767
_ABSTRACT = sys.platform == "linux"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listens on, and that no other call returns while we live."""
    # Below the range of outgoing connections, none of which can take the port while its server restarts.
    last = min(_LAST, _first_ephemeral() - 1)
    candidates = random.SystemRandom().sample(range(_FIRST, last), k=min(500, last - _FIRST))
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if is_free(port) and _claim(port):
            found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} free ports between {_FIRST} and {last}")
    return found


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    """Keep other processes of ours from choosing this port, until this one ends.

    They may look before its server listens, or while that restarts. A name in Linux's abstract namespace is taken
    by one process at a time and goes with it; elsewhere chance has to do.
    """
    if not _ABSTRACT:
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0scheduler-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open for as long as we live
    return True


def _first_ephemeral() -> int:
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _LAST + 1
    return first if first > _FIRST + 1000 else _LAST + 1
