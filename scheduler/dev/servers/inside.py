"""Run a program inside the root of another Debian suite: `python3 -I inside.py ROOT PROGRAM [ARGUMENT …]`.

It replaces itself with the program, so the process id, the signals and the exit code are the program's own. The
mounts are in a private namespace and end with the process. An ordinary user gets them through a user namespace.
It imports only the standard library, because the machine's own Python runs it.
"""

import ctypes
import os
import sys
import tempfile

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _SLAVE = 4096, 16384, 1 << 19
_libc = ctypes.CDLL(None, use_errno=True)


def main(root: str, program: str, *arguments: str) -> None:
    """Enter the root with the machine's processes, devices and temporary files, and become the program."""
    _leave_namespaces()
    _mount(None, "/", _RECURSIVE | _SLAVE)
    # The root is also visible at its own path, so that links to files in it work inside and outside.
    shared = dict.fromkeys(("/proc", "/dev", "/tmp", "/var/tmp", tempfile.gettempdir(), root))  # noqa: S108 - the machine's own folders
    for folder in shared:
        inside = root + folder
        os.makedirs(inside, exist_ok=True)  # noqa: PTH103 - plain strings are enough here
        _mount(folder, inside, _BIND | (0 if folder == root else _RECURSIVE))
    os.chroot(root)
    os.chdir("/")
    os.execvp(program, [program, *arguments])  # noqa: S606 - no shell is wanted


def _leave_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_MOUNTS | (0 if user == 0 else _NEW_USERS)))
    if user:
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
                file.write(text)


def _mount(source: str | None, target: str, flags: int) -> None:
    encoded = None if source is None else source.encode()
    _check(_libc.mount(encoded, target.encode(), None, ctypes.c_ulong(flags), None))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
