"""Keys that verify tokens. The type of a key determines the algorithm; the token never does."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from scheduler.api.bounded_http import check_url, fetch
from scheduler.api.secret_check import secret_problem
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.ops.logs import get_logger
from scheduler.settings import Settings

log = get_logger(__name__)

MIN_RSA_BITS = 2048
FRESH_SECONDS = 300.0  # age at which a key set is reloaded
MIN_RELOAD_SECONDS = 10.0  # between two reloads, also for unknown keys
_MAX_STALE_SECONDS = 2 * FRESH_SECONDS  # an unused set that is older is reloaded before use
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key, its algorithms, and its name in a set."""

    value: Any
    algorithms: tuple[str, ...]
    kid: str | None = None


class KeySource(Protocol):
    """A source of keys."""

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the keys that may have signed such a token. Raises Unavailable if no keys can be read."""

    def may_wait(self, kid: str | None, algorithm: str) -> bool:
        """Return whether `find` would fetch keys, or wait for another caller's fetch."""

    def version(self) -> float | None:
        """Return a value that changes with the keys; None if they must be reloaded."""


class StaticKey:
    """A secret or a public key from the settings."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def find(self, _: str | None, algorithm: str) -> Sequence[Key]:
        """Return the key, regardless of the token's key id."""
        return (self._key,) if algorithm in self._key.algorithms else ()

    def may_wait(self, _kid: str | None, _algorithm: str) -> bool:
        """Return False: the key is in memory."""
        return False

    def version(self) -> float:
        """Return a constant: the key never changes."""
        return 0.0


class NoKeys:
    """No key: sign-in with OpenID Connect is the only way in, and every token is rejected."""

    def find(self, _kid: str | None, _algorithm: str) -> Sequence[Key]:
        """Return nothing."""
        return ()

    def may_wait(self, _kid: str | None, _algorithm: str) -> bool:
        """Return False: nothing is fetched."""
        return False

    def version(self) -> float:
        """Return a constant."""
        return 0.0


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="key set", daemon=True).start()


class KeySet:
    """A JSON Web Key Set, reloaded when it is old or lacks a key, so that keys can be rotated.

    It is reloaded at most every MIN_RELOAD_SECONDS, even for unknown keys. A token with a key in the set does not
    wait: an old set is reloaded in the background.
    """

    def __init__(
        self, read: Callable[[], bytes], clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_background,
    ) -> None:
        self._read = read
        self._clock = clock
        self._start = start
        self._lock = threading.Lock()
        self._keys: tuple[Key, ...] = ()
        self._read_at = -_MAX_STALE_SECONDS
        self._tried_at = -_MAX_STALE_SECONDS
        self._problem = "it has not been read yet"

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the keys with that id, or all keys for the algorithm if the token names none."""
        keys = self._matching(kid, algorithm)
        if keys and not self._too_stale():
            if self.version() is None and self._may_reload():
                self._start(self.refresh)
            return keys
        self.refresh(wait=not keys)
        keys = self._matching(kid, algorithm)
        if not self._keys:
            raise Unavailable(f"the key set cannot be read: {self._problem}")
        return keys

    def may_wait(self, kid: str | None, algorithm: str) -> bool:
        """Return whether `find` would fetch the set, or wait for another caller's fetch."""
        if self._matching(kid, algorithm):
            return self._too_stale() and not self._lock.locked()
        return self._may_reload() or self._lock.locked()

    def version(self) -> float | None:
        """Return the time at which the set was read, None once it is old."""
        return self._read_at if self._clock() - self._read_at <= FRESH_SECONDS else None

    def _too_stale(self) -> bool:
        """Return whether the set was unused for so long that a key may have been revoked since."""
        now = self._clock()
        return now - self._read_at > _MAX_STALE_SECONDS and now - self._tried_at > FRESH_SECONDS

    def _may_reload(self) -> bool:
        return self._clock() - self._tried_at >= MIN_RELOAD_SECONDS

    def _matching(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        return [key for key in self._keys if algorithm in key.algorithms and (kid is None or key.kid == kid)]

    def refresh(self, *, wait: bool = True) -> None:
        """Reload the set, unless that was tried recently; after a failure the old set stays in use.

        If another thread is reloading it, wait for that, or return at once with `wait=False`.
        """
        if not self._lock.acquire(blocking=wait):
            return
        try:
            if self._may_reload():
                self._tried_at = self._clock()
                self._reload()
        finally:
            self._lock.release()

    def _reload(self) -> None:
        try:
            self._keys = key_set(self._read())
            self._read_at = self._clock()
        except (OSError, ValueError, Unavailable) as error:
            self._problem = str(error)[:300]
            log.warning("key set cannot be read: the previous keys stay in use", problem=self._problem,
                        do="check SCHEDULER_JWKS_URL or SCHEDULER_JWKS_FILE")


def key_source(settings: Settings) -> KeySource:
    """Return the keys in the settings. Raises Misconfigured."""
    names = [name for name, value in (
        ("SCHEDULER_JWT_KEY", settings.jwt_key), ("SCHEDULER_JWKS_FILE", settings.jwks_file),
        ("SCHEDULER_JWKS_URL", settings.jwks_url),
    ) if value is not None]
    if not names and settings.oidc_issuer is not None:
        return NoKeys()
    if len(names) != 1:
        raise Misconfigured(
            f"{' and '.join(names)} are set; keep one" if names else
            "the API needs a key to verify tokens: set SCHEDULER_JWT_KEY (or SCHEDULER_JWT_KEY_FILE), "
            "SCHEDULER_JWKS_FILE or SCHEDULER_JWKS_URL, or SCHEDULER_OIDC_ISSUER for sign-in alone"
        )
    if settings.jwt_key is not None:
        return StaticKey(one_key(settings.jwt_key))
    if settings.jwks_url is not None:
        url = settings.jwks_url
        if not check_url(url):
            raise Misconfigured("SCHEDULER_JWKS_URL must be an https URL (http only on this machine, as in "
                                "http://127.0.0.1/keys): an attacker who can change the keys can create tokens")
        return KeySet(lambda: fetch(url))
    path = Path(settings.jwks_file or "")
    try:
        key_set(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Misconfigured(f"SCHEDULER_JWKS_FILE cannot be used: {error}") from None
    return KeySet(path.read_bytes)


def one_key(text: str) -> Key:
    """Return a secret for HS256, or a PEM public key for its type's algorithms. Raises Misconfigured."""
    if "-----BEGIN" not in text:
        problem = secret_problem(text)
        if problem is not None:
            raise Misconfigured(f"SCHEDULER_JWT_KEY {problem}")
        return Key(text.encode(), ("HS256",))
    try:
        public = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise Misconfigured("SCHEDULER_JWT_KEY must be a PEM public key (BEGIN PUBLIC KEY), or a secret; "
                            "openssl x509 -pubkey -noout prints the key of a certificate") from None
    algorithms = _algorithms(public)
    if not algorithms:
        raise Misconfigured("SCHEDULER_JWT_KEY cannot verify tokens: unsupported type, or RSA below 2,048 bits")
    return Key(public, algorithms)


def _algorithms(public: Any) -> tuple[str, ...]:
    if isinstance(public, rsa.RSAPublicKey):
        return _RSA if public.key_size >= MIN_RSA_BITS else ()
    if isinstance(public, ec.EllipticCurvePublicKey):
        algorithm = _CURVES.get(public.curve.name)
        return (algorithm,) if algorithm else ()
    return ("EdDSA",) if isinstance(public, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) else ()


def key_set(text: bytes) -> tuple[Key, ...]:
    """Parse the public signing keys in a JSON Web Key Set. Raises ValueError if there are none."""
    try:
        entries = json.loads(text)["keys"]
        keys = tuple(key for entry in entries if isinstance(entry, dict) and (key := _entry(entry)) is not None)
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"is not a JSON Web Key Set ({type(error).__name__})") from None
    if not keys:
        raise ValueError("has no public key that signs tokens")
    return keys


def _entry(entry: dict[str, Any]) -> Key | None:
    # A symmetric key in a public set is not secret.
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    try:
        public = jwt.PyJWK(entry).key
    except jwt.PyJWTError:
        return None
    algorithms = _algorithms(public)
    if "alg" in entry:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == entry["alg"])
    kid = entry.get("kid")
    return Key(public, algorithms, kid if isinstance(kid, str) else None) if algorithms else None
