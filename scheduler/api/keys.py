"""The keys that tokens are verified by. What kind of key it is decides the algorithm; the token never does."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from scheduler.api.secret_check import secret_problem
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.ops.logs import get_logger
from scheduler.settings import Settings

log = get_logger(__name__)

LEAST_RSA_BITS = 2048
FRESH_SECONDS = 300.0  # a key set is fetched again after so long
SOONEST_SECONDS = 10.0  # and for a key that it lacks no more often than so
_LONGEST_SECONDS = 2 * FRESH_SECONDS  # a set that nobody asked about for longer is read before it is used
_FETCH_SECONDS = 5.0
_LARGEST_SET = 1_000_000
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key, the algorithms that it is for, and its name in a set."""

    value: Any
    algorithms: tuple[str, ...]
    kid: str | None = None


class KeySource(Protocol):
    """Where keys come from."""

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the keys that may have signed such a token; raise Unavailable where none can be had."""

    def may_wait(self, kid: str | None, algorithm: str) -> bool:
        """Tell whether `find` would fetch keys first, or wait for those who do."""

    def version(self) -> float | None:
        """Return what is the same for as long as the keys are; None where they have to be looked at again."""


class StaticKey:
    """A secret or a public key from the settings."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def find(self, _: str | None, algorithm: str) -> Sequence[Key]:
        """Return the key, whatever the token calls it."""
        return (self._key,) if algorithm in self._key.algorithms else ()

    def may_wait(self, _kid: str | None, _algorithm: str) -> bool:
        """It is there."""
        return False

    def version(self) -> float:
        """It never changes."""
        return 0.0


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="key set", daemon=True).start()


class KeySet:
    """A JSON Web Key Set, read again when it is old or lacks a key, so that keys can be rotated.

    Reads are never closer together than SOONEST_SECONDS, whatever tokens ask for. A token whose key is in the set
    does not wait for them: an old set is read again in the background.
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
        self._read_at = -_LONGEST_SECONDS
        self._tried_at = -_LONGEST_SECONDS
        self._problem = "it was not read yet"

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the keys of that name, or all of that kind where the token names none."""
        found = self._matching(kid, algorithm)
        if found and not self._forgotten():
            if self.version() is None and self._may_try():
                self._start(self.refresh)
            return found
        self.refresh(wait=not found)
        found = self._matching(kid, algorithm)
        if not self._keys:
            raise Unavailable(f"the key set cannot be read: {self._problem}")
        return found

    def may_wait(self, kid: str | None, algorithm: str) -> bool:
        """Tell whether `find` would fetch the set first, or wait for those who do."""
        if self._matching(kid, algorithm):
            return self._forgotten() and not self._lock.locked()
        return self._may_try() or self._lock.locked()

    def version(self) -> float | None:
        """Return when the set was read, None once it is old."""
        return self._read_at if self._clock() - self._read_at <= FRESH_SECONDS else None

    def _forgotten(self) -> bool:
        """Tell whether nobody has asked for so long that a key may have been withdrawn meanwhile."""
        now = self._clock()
        return now - self._read_at > _LONGEST_SECONDS and now - self._tried_at > FRESH_SECONDS

    def _may_try(self) -> bool:
        return self._clock() - self._tried_at >= SOONEST_SECONDS

    def _matching(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        return [key for key in self._keys if algorithm in key.algorithms and (kid is None or key.kid == kid)]

    def refresh(self, *, wait: bool = True) -> None:
        """Read the set again, unless that was done or tried just now; an old set outlives a failure.

        Where another reads it, wait for that one or go on with the old set.
        """
        if not self._lock.acquire(blocking=wait):
            return
        try:
            if self._may_try():
                self._tried_at = self._clock()
                self._reread()
        finally:
            self._lock.release()

    def _reread(self) -> None:
        try:
            self._keys = key_set(self._read())
            self._read_at = self._clock()
        except (OSError, ValueError, Unavailable) as error:
            self._problem = str(error)[:300]
            log.warning("key set cannot be read: the keys known before stay in use", problem=self._problem,
                        do="check SCHEDULER_JWKS_URL or SCHEDULER_JWKS_FILE")


def key_source(settings: Settings) -> KeySource:
    """Return the keys that the settings name, or raise Misconfigured."""
    given = [name for name, value in (
        ("SCHEDULER_JWT_KEY", settings.jwt_key), ("SCHEDULER_JWKS_FILE", settings.jwks_file),
        ("SCHEDULER_JWKS_URL", settings.jwks_url),
    ) if value is not None]
    if len(given) != 1:
        raise Misconfigured(
            f"{' and '.join(given)} are set; keep one" if given else
            "the API needs a key to verify tokens by: set SCHEDULER_JWT_KEY (or SCHEDULER_JWT_KEY_FILE), "
            "SCHEDULER_JWKS_FILE or SCHEDULER_JWKS_URL"
        )
    if settings.jwt_key is not None:
        return StaticKey(one_key(settings.jwt_key))
    if settings.jwks_url is not None:
        url = settings.jwks_url
        if not _check_url(url):
            raise Misconfigured("SCHEDULER_JWKS_URL must be an https URL (http only on this machine, as in "
                                "http://127.0.0.1/keys): whoever can change the keys on their way can make tokens")
        return KeySet(lambda: _fetch(url))
    path = Path(settings.jwks_file or "")
    try:
        key_set(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Misconfigured(f"SCHEDULER_JWKS_FILE cannot be used: {error}") from None
    return KeySet(path.read_bytes)


def one_key(text: str) -> Key:
    """Return a secret for HS256, or a PEM public key for its own kind of algorithm; raise Misconfigured."""
    if "-----BEGIN" not in text:
        problem = secret_problem(text)
        if problem is not None:
            raise Misconfigured(f"SCHEDULER_JWT_KEY {problem}")
        return Key(text.encode(), ("HS256",))
    try:
        public = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise Misconfigured("SCHEDULER_JWT_KEY must be a PEM public key (BEGIN PUBLIC KEY), or a secret; of a "
                            "certificate, openssl x509 -pubkey -noout prints it") from None
    algorithms = _algorithms(public)
    if not algorithms:
        raise Misconfigured("SCHEDULER_JWT_KEY is of a kind that signs no tokens, or an RSA key below 2,048 bits")
    return Key(public, algorithms)


def _algorithms(public: Any) -> tuple[str, ...]:
    if isinstance(public, rsa.RSAPublicKey):
        return _RSA if public.key_size >= LEAST_RSA_BITS else ()
    if isinstance(public, ec.EllipticCurvePublicKey):
        found = _CURVES.get(public.curve.name)
        return (found,) if found else ()
    return ("EdDSA",) if isinstance(public, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) else ()


def key_set(text: bytes) -> tuple[Key, ...]:
    """Read a JSON Web Key Set: public signing keys only; raise ValueError where there is none."""
    try:
        entries = json.loads(text)["keys"]
        found = tuple(key for entry in entries if isinstance(entry, dict) and (key := _entry(entry)) is not None)
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"is no JSON Web Key Set ({type(error).__name__})") from None
    if not found:
        raise ValueError("has no public key that signs tokens")
    return found


def _entry(entry: dict[str, Any]) -> Key | None:
    # A symmetric key has no place in a set that others can read.
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    try:
        public = jwt.PyJWK(entry).key
    except jwt.PyJWTError:
        return None
    algorithms = _algorithms(public)
    if "alg" in entry:
        algorithms = tuple(each for each in algorithms if each == entry["alg"])
    kid = entry.get("kid")
    return Key(public, algorithms, kid if isinstance(kid, str) else None) if algorithms else None


def _check_url(url: str) -> bool:
    """Tell whether nobody on the way can change what is fetched: by TLS, or because there is no way."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return bool(host)
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


class _SameOriginRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to where the set itself might be."""

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Return the next request, or raise HTTPError."""
        if not _check_url(newurl):
            raise urllib.error.HTTPError(newurl, code, "it redirects to an address that is not https", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameOriginRedirects)


def _fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http(s) was checked
    until = time.monotonic() + 2 * _FETCH_SECONDS
    text = b""
    try:
        with _OPENER.open(request, timeout=_FETCH_SECONDS) as answer:
            while part := answer.read1(_LARGEST_SET):
                text += part
                if len(text) > _LARGEST_SET:
                    raise ValueError(f"has more than {_LARGEST_SET:,} bytes")
                if time.monotonic() > until:
                    raise Unavailable("comes too slowly")
            if answer.length:
                raise Unavailable("was cut off")
    except HTTPException as error:
        raise Unavailable(f"is no answer by HTTP ({type(error).__name__})") from None
    return text
