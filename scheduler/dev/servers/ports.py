"""Choose free ports outside the range of outgoing connections."""

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
    """Return different free ports that no other call returns until this process ends."""
    # Below the range of outgoing connections, none of which can take the port while its server restarts.
    last = min(_LAST, _first_ephemeral() - 1)
    candidates = random.SystemRandom().sample(range(_FIRST, last), k=min(500, last - _FIRST))
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        if is_free(port) and _claim(port):
            ports.append(port)
    if len(ports) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} free ports between {_FIRST} and {last}")
    return ports


def is_free(port: int) -> bool:
    """Return whether a server could currently listen on this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    """Keep our other processes from choosing this port until this one ends.

    They may check before the server listens, or while it restarts. Only one process at a time can hold a name in
    Linux's abstract namespace. On other systems the random choice must suffice.
    """
    if not _ABSTRACT:
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0scheduler-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # stays open until this process ends
    return True


def _first_ephemeral() -> int:
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _LAST + 1
    return first if first > _FIRST + 1000 else _LAST + 1
