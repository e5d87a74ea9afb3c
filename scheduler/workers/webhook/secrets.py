"""Provide the secrets of the operator's file, and reload it when it changes."""

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from scheduler.domain.errors import Misconfigured
from scheduler.ops.logs import get_logger
from scheduler.workers.webhook.secrets_file import HEADER, PREFIX, SETTING, SIGN, Secret, read_secrets, signing_key

log = get_logger(__name__)

_RELOAD_SECONDS = 2.0


class SecretMissing(Exception):  # noqa: N818 - the job's fault, not an error here
    """A job names a secret that it cannot use; the message is the same whether the secret exists or not."""


class Secrets:
    """Secrets by name, the newest value first. Thread-safe."""

    def __init__(self, path: str | None) -> None:
        """Read the file. Raises Misconfigured if it cannot be read."""
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._secrets = self._read()
        self._checked_at = time.monotonic()

    def for_call(self, tenant: str, url: str) -> "CallSecrets":
        """Return the secrets that a job of this tenant may use in a call to this URL."""
        return CallSecrets(self, tenant, url)

    def get(self, name: str, use: str, tenant: str, url: str) -> Secret:
        """Return a secret. Raises SecretMissing if it does not exist or is not for this use, tenant or URL."""
        if time.monotonic() - self._checked_at > _RELOAD_SECONDS:
            self._reload()
        secret = self._secrets.get(name)
        if secret is None or not secret.allows(use, tenant, url):
            reason = f"{SETTING} is not set" if self._path is None else (
                f"it is not in the worker's {SETTING}, or not for this tenant, host and use "
                f"({PREFIX} values sign, others are for headers)")
            raise SecretMissing(f"the secret {name[:100]!r} is not available: {reason}")
        return secret

    def _reload(self) -> None:
        with self._lock:
            self._checked_at = time.monotonic()
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._secrets = self._read()
                log.info("secrets reloaded", names=len(self._secrets))
            except Misconfigured as error:
                log.warning("secrets not reloaded; the previous ones stay in use", problem=str(error),
                            do=f"fix the file of {SETTING}")

    def _read_stamp(self) -> tuple[int, int, int] | None:
        try:
            if self._path is None:
                return None
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> Mapping[str, Secret]:
        return {} if self._path is None else read_secrets(self._path)


class CallSecrets:
    """The secrets that one call may use, and the values that it has used."""

    def __init__(self, secrets: Secrets, tenant: str, url: str) -> None:
        self._secrets = secrets
        self._tenant = tenant
        self._url = url
        self.used: tuple[str, ...] = ()

    def header(self, name: str) -> str:
        """Return the value for a header: the newest one."""
        return self._values(name, HEADER)[0]

    def signature(self, name: str, message_id: str, timestamp: int, body: bytes) -> str:
        """Return the Standard Webhooks signatures, one for each value of the secret."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        keys = (signing_key(value) for value in self._values(name, SIGN))
        return " ".join(
            "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys if key
        )

    def _values(self, name: str, use: str) -> tuple[str, ...]:
        values = self._secrets.get(name, use, self._tenant, self._url).values
        self.used += values
        return values
