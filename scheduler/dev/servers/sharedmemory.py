"""Remove the shared memory that a killed Postgres leaves behind."""

import shutil
import subprocess
from pathlib import Path

_SEGMENTS = Path("/proc/sysvipc/shm")
_KEY_LINE = 6  # of postmaster.pid: the segment's key and number
_KEY, _NUMBER, _ATTACHED = 0, 1, 6  # columns of /proc/sysvipc/shm


def release(directory: Path) -> None:
    """Free the System V segments named by the postmaster.pid files below `directory`, unless in use."""
    program = shutil.which("ipcrm")
    if program is None or not _SEGMENTS.exists():
        return
    unused = _unused_segments()
    for left_over in directory.glob("*/data/postmaster.pid"):
        segment = _segment(left_over)
        if segment in unused:
            subprocess.run([program, "-m", segment[1]], capture_output=True, check=False)  # noqa: S603 - a program of the system


def _segment(pid_file: Path) -> tuple[str, str] | None:
    try:
        key, number = pid_file.read_text(encoding="utf-8").splitlines()[_KEY_LINE].split()
    except (OSError, ValueError, IndexError):
        return None
    return key, number


def _unused_segments() -> set[tuple[str, str]]:
    rows = [line.split() for line in _SEGMENTS.read_text(encoding="ascii").splitlines()[1:]]
    # Postgres writes the key unsigned, the kernel's table signed.
    return {(str(int(row[_KEY]) % 2**32), row[_NUMBER]) for row in rows if row[_ATTACHED] == "0"}
