"""The secrets that jobs name: read from the operator's file again when it changes, and never shown."""

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

_LOOK_SECONDS = 2.0


class SecretMissing(Exception):  # noqa: N818 - a verdict about the job, not an accident
    """A job names a secret that it cannot use; the text is the same whether the secret exists or not."""


class Secrets:
    """Secrets by name, the newest value first. Safe for use from any thread."""

    def __init__(self, path: str | None) -> None:
        """Read the file. Raises Misconfigured if it cannot be read."""
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._stamp = self._stamped()
        self._secrets = self._read()
        self._looked = time.monotonic()

    def for_call(self, tenant: str, url: str) -> "CallSecrets":
        """Return the secrets that a job of this tenant may use in a call to this URL."""
        return CallSecrets(self, tenant, url)

    def get(self, name: str, use: str, tenant: str, url: str) -> Secret:
        """Return a secret. Raises SecretMissing if it does not exist or is not for this use, tenant or URL."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look_again()
        secret = self._secrets.get(name)
        if secret is None or not secret.allows(use, tenant, url):
            where = f"{SETTING} is not set" if self._path is None else (
                f"it is not in this worker's {SETTING}, or not for this tenant, host and use "
                f"({PREFIX} values sign, others go into headers)")
            raise SecretMissing(f"the secret {name[:100]!r} is not there: {where}")
        return secret

    def _look_again(self) -> None:
        with self._lock:
            self._looked = time.monotonic()
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._secrets = self._read()
                log.info("secrets read again", names=len(self._secrets))
            except Misconfigured as error:
                log.warning("secrets cannot be read: those known before stay in use", problem=str(error),
                            do=f"correct the file that {SETTING} names")

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            if self._path is None:
                return None
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Mapping[str, Secret]:
        return {} if self._path is None else read_secrets(self._path)


class CallSecrets:
    """The secrets as one call may use them; remembers the values that it used."""

    def __init__(self, secrets: Secrets, tenant: str, url: str) -> None:
        self._secrets = secrets
        self._tenant = tenant
        self._url = url
        self.used: tuple[str, ...] = ()

    def header(self, name: str) -> str:
        """Return the text for a header: the newest value."""
        return self._values(name, HEADER)[0]

    def signature(self, name: str, message_id: str, timestamp: int, body: bytes) -> str:
        """Sign by Standard Webhooks, once with each value of the secret."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        keys = (signing_key(value) for value in self._values(name, SIGN))
        return " ".join(
            "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys if key
        )

    def _values(self, name: str, use: str) -> tuple[str, ...]:
        values = self._secrets.get(name, use, self._tenant, self._url).values
        self.used += values
        return values
