"""Compiled zone files from the `tzdata` package, a directory that replaces some of them, or another version.

Every process uses one set, so that all replicas agree regardless of their operating systems.
"""

import re
import struct
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

_NOT_ZONES = frozenset({"Factory", "localtime", "posixrules"})
_OTHER_SCALES = frozenset({"posix", "right"})  # directories of the same zones, without and with leap seconds
_MAGIC = b"TZif"
_VERSION = re.compile(r"[0-9]{4}[0-9A-Za-z._+-]{0,28}")
_VERSION_LINE = re.compile(r"# version (\S+)")
_MAX_NAME = 100
_LARGEST_FILE = 1 << 20


class InvalidZoneData(ValueError):  # noqa: N818 - settings turn it into Misconfigured
    """A directory is not usable as zone data."""


class ZoneData:
    """Zone files by name, with the version and the source of the data. Compared by identity."""

    def __init__(self, version: str, source: str, files: Mapping[str, bytes], *, packaged: bool = False) -> None:
        """Use these files, and for other zones the files of the package if `packaged`."""
        self.version = version
        self.source = source
        self._files = files
        self._packaged = packaged

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its zones."""
        return frozenset(self._files) | (_packaged_names() if self._packaged else frozenset())

    def file(self, name: str) -> bytes:
        """Return a zone's file. Raises KeyError."""
        content = self._files.get(name)
        if content is not None:
            return content
        if name not in self.names:
            raise KeyError(name)
        return resources.files(tzdata).joinpath("zoneinfo", *name.split("/")).read_bytes()


def _packaged_names() -> frozenset[str]:
    names = resources.files(tzdata).joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(names) - _NOT_ZONES


PACKAGED = ZoneData(str(tzdata.IANA_VERSION), "tzdata package", {}, packaged=True)
_current = PACKAGED


def current() -> ZoneData:
    """Return the zone data of this process."""
    return _current


def use(data: ZoneData) -> None:
    """Use other zone data in this process from now on."""
    global _current  # noqa: PLW0603 - one set for the whole process
    _current = data


def read_directory(path: Path) -> ZoneData:
    """Read a directory of compiled zone files; zones that it lacks come from the package. Raises InvalidZoneData.

    All files are read at once, so that a change of the directory does not mix two versions in one process.
    """
    version = _version(path)
    files = {}
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        name = "/".join(parts)
        if name not in _NOT_ZONES and parts[0] not in _OTHER_SCALES and file.is_file():
            content = _zone_file(file, name)
            if content is not None:
                files[name] = content
    if not files:
        raise InvalidZoneData("contains no compiled zone files (TZif); zic writes them")
    return ZoneData(version, str(path), files, packaged=True)


def _version(path: Path) -> str:
    """Return the version that a directory states."""
    try:
        if (path / "+VERSION").is_file():
            version = (path / "+VERSION").read_text(encoding="ascii").strip()
        elif (path / "tzdata.zi").is_file():
            with (path / "tzdata.zi").open(encoding="ascii", errors="replace") as lines:
                match = _VERSION_LINE.match(lines.readline(200))
            version = match[1] if match else ""
        else:
            raise InvalidZoneData("states no version: write it to the file +VERSION, such as 2026c")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidZoneData(f"cannot be read: {error}") from None
    if not _VERSION.fullmatch(version):
        raise InvalidZoneData(f"states the version {version[:40]!r}; write one such as 2026c to the file +VERSION")
    return version


def _zone_file(file: Path, name: str) -> bytes | None:
    """Return the content of a zone file; None if it is another file."""
    try:
        with file.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC or len(name) > _MAX_NAME:
                return None
            stream.seek(0)
            content = stream.read(_LARGEST_FILE)
            stream.seek(0)
            ZoneInfo.from_file(stream)
    except OSError as error:
        raise InvalidZoneData(f"cannot be read: {error}") from None
    except (ValueError, IndexError, ArithmeticError, struct.error) as error:
        raise InvalidZoneData(f"{name} is not a valid zone file: {error}") from None
    return content
