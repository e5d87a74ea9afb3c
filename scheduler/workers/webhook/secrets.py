"""The secrets that jobs name: from the operator's file, read again when it changes, and never shown."""

import base64
import binascii
import hashlib
import hmac
import re
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from scheduler.domain.errors import Misconfigured
from scheduler.ops.logs import get_logger

log = get_logger(__name__)

_SETTING = "SCHEDULER_WEBHOOK_SECRETS_FILE"
_PREFIX = "whsec_"
_LOOK_SECONDS = 2.0
_LINE = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")


class SecretMissing(Exception):  # noqa: N818 - a verdict about the job, not an accident
    """A job names a secret that this worker cannot use; the text says which and why, and shows nothing of it."""


class Secrets:
    """Secrets by name, the newest value first. Any thread may ask."""

    def __init__(self, path: str | None) -> None:
        """Read the file; raise Misconfigured where that cannot be done."""
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._stamp = self._stamped()
        self._values = self._read()
        self._looked = time.monotonic()

    def text(self, name: str) -> str:
        """Return what a header gets: the first value."""
        return self._found(name)[0]

    def signature(self, name: str, message_id: str, timestamp: int, body: bytes) -> str:
        """Sign by Standard Webhooks, once with each value that the secret has."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        return " ".join(
            "v1," + base64.b64encode(hmac.digest(_key(name, value), signed, hashlib.sha256)).decode()
            for value in self._found(name)
        )

    def _found(self, name: str) -> Sequence[str]:
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look_again()
        found = self._values.get(name)
        if found is None:
            where = f"{_SETTING} is not set" if self._path is None else f"it is not in this worker's {_SETTING}"
            raise SecretMissing(f"the secret {name[:100]!r} is not there: {where}")
        return found

    def _look_again(self) -> None:
        with self._lock:
            self._looked = time.monotonic()
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._values = self._read()
                log.info("secrets read again", names=len(self._values))
            except Misconfigured as error:
                log.warning("secrets cannot be read: those known before stay in use", problem=str(error),
                            do=f"correct the file that {_SETTING} names")

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            if self._path is None:
                return None
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Mapping[str, Sequence[str]]:
        if self._path is None:
            return {}
        try:
            entries = tomllib.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(f"{_SETTING}: {self._path} cannot be read: {type(error).__name__}") from None
        except tomllib.TOMLDecodeError as error:
            # Its own words may quote a part of a secret; where it is does not.
            where = _LINE.search(str(error))
            raise Misconfigured(f"{_SETTING}: {self._path} is not TOML"
                                f"{f' ({where[1]})' if where else ''}") from None
        found: dict[str, Sequence[str]] = {}
        for name, entry in entries.items():
            values = [entry] if isinstance(entry, str) else entry
            if not isinstance(values, list) or not values or not all(isinstance(v, str) and v for v in values):
                raise Misconfigured(f"{_SETTING}: {name} must be a text, or a list of texts, the newest first")
            for value in values:
                if value.startswith(_PREFIX):
                    _usable(name, value)
            found[name] = tuple(values)
        return found


def _usable(name: str, value: str) -> None:
    try:
        _key(name, value)
    except SecretMissing as error:
        raise Misconfigured(f"{_SETTING}: {error}") from None


def _key(name: str, value: str) -> bytes:
    if not value.startswith(_PREFIX):
        raise SecretMissing(f"the secret {name[:100]!r} cannot sign: it does not begin with {_PREFIX}")
    try:
        key = base64.b64decode(value.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise SecretMissing(f"the secret {name[:100]!r} cannot sign: after {_PREFIX} must come base64")
    return key
