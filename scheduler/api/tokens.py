"""Verify bearer tokens, and issue tokens signed with the secret."""

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import jwt

from scheduler.api.identity import Identity, Role
from scheduler.api.keys import Key, KeySource, one_key
from scheduler.api.problems import ServiceUnavailable, Unauthorized
from scheduler.domain.errors import Misconfigured, Unavailable

LEEWAY_SECONDS = 60
MAX_LIFETIME = timedelta(days=400)  # a single token cannot be revoked before it expires
MAX_TOKEN = 8192  # characters
MAX_SUB = 200
_PARTS = re.compile(r"([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,100}")
ROLES_BY_NAME = {role.name.lower(): role for role in Role if role is not Role.NONE}
ROLES = tuple(ROLES_BY_NAME)
_MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """The cached result of verifying a token: claims, version of the keys, and validity."""

    sub: str
    role: Role
    tenant: str | None
    digest: str
    keys: float
    since: float
    until: float


class TokenVerifier:
    """Verifies tokens. Valid ones are cached until they expire or the keys are old."""

    def __init__(
        self, keys: KeySource, issuer: str | None = None, audience: str | None = None,
        clock: Callable[[], float] = time.time, not_before: float | None = None,
    ) -> None:
        """Verify with `keys`; reject tokens issued before `not_before`."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._not_before = not_before
        self._cache: dict[bytes, _VerifiedToken] = {}
        self._lock = threading.Lock()

    def identify(self, token: str, address: str | None = None) -> Identity:
        """Return the token's identity. Raises Unauthorized, or ServiceUnavailable if no key is available."""
        token = _unpadded(token)
        return self.cached(token, address) or self._verify(token, address)

    def may_wait(self, token: str) -> bool:
        """Return whether `identify` would have to wait for a key fetch."""
        try:
            if len(token) > MAX_TOKEN:
                return False
            head = jwt.get_unverified_header(_unpadded(token))
            return self._keys.may_wait(head.get("kid"), str(head.get("alg")))
        except Exception:  # noqa: BLE001 - `identify` reports the error
            return False

    def cached(self, token: str, address: str | None = None) -> Identity | None:
        """Return the identity of a token that was verified before, None if it must be verified."""
        entry = self._cache.get(_digest(_unpadded(token)))
        if entry is None or entry.keys != self._keys.version() or not entry.since <= self._clock() < entry.until:
            return None
        return Identity(entry.sub, entry.role, entry.tenant, entry.digest, address)

    def _verify(self, token: str, address: str | None) -> Identity:
        if len(token) > MAX_TOKEN:
            raise Unauthorized(f"The token has more than {MAX_TOKEN:,} characters.")
        version, now = self._keys.version(), self._clock()
        signed = _signed_part(token)
        claims = self._verified_claims(token)
        self._check_lifetime(claims, now)
        sub = claims["sub"]
        if not isinstance(sub, str) or not 0 < len(sub) <= MAX_SUB or not sub.isprintable():
            raise Unauthorized(f"The token's sub must be a string of 1 to {MAX_SUB} characters.")
        digest = _digest(token)
        # The rate limit's key is the signed part: a signature has several encodings, the signed part only one.
        signed_digest = _digest(signed).hex()[:32]
        who = Identity(sub, _role(claims), parse_tenant(claims.get("tenant", "*")), signed_digest, address)
        if version is not None:
            until = int(claims["exp"]) + LEEWAY_SECONDS
            verified = _VerifiedToken(sub, who.role, who.tenant, who.token, version, now, until)
            with self._lock:
                if len(self._cache) >= _MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
                self._cache[digest] = verified
        return who

    def _check_lifetime(self, claims: dict[str, Any], now: float) -> None:
        """Raise Unauthorized for a token that lasts too long, or was issued before the cut-off."""
        issued = claims.get("iat")
        lifetime = int(claims["exp"]) - min(now, now if issued is None else float(issued))
        if lifetime > MAX_LIFETIME.total_seconds() + LEEWAY_SECONDS:
            raise Unauthorized(f"The token is valid for more than {MAX_LIFETIME.days} days.")
        if self._not_before is None:
            return
        if issued is None:
            raise Unauthorized("The token has no iat, which SCHEDULER_JWT_NOT_BEFORE requires.")
        if float(issued) < self._not_before:
            raise Unauthorized("The token was issued before SCHEDULER_JWT_NOT_BEFORE.")

    def _verified_claims(self, token: str) -> dict[str, Any]:
        try:
            head = jwt.get_unverified_header(token)
            algorithm, kid = head.get("alg"), head.get("kid")
            keys = self._keys.find(kid, algorithm) if isinstance(algorithm, str) else ()
            problem = "The token was signed with an unknown key, or with the wrong algorithm for its key."
            for key in keys:
                try:
                    return self._decode(token, key)
                except jwt.InvalidSignatureError:
                    continue
        except Unavailable as error:
            raise ServiceUnavailable(f"Tokens cannot be verified at the moment: {error}") from None
        except jwt.PyJWTError as error:
            problem = f"The token is invalid: {error}."
        except (ValueError, TypeError, ArithmeticError, RecursionError, AttributeError):
            # A hostile token may raise any of these in the library; the token is invalid.
            problem = "The token is malformed."
        raise Unauthorized(problem.encode("ascii", "backslashreplace").decode()[:300])

    def _decode(self, token: str, key: Key) -> dict[str, Any]:
        options: Any = {"require": ["exp", "sub"], "verify_aud": self._audience is not None, "verify_sub": True}
        claims: dict[str, Any] = jwt.decode(
            token, key.value, algorithms=list(key.algorithms), issuer=self._issuer, audience=self._audience,
            leeway=LEEWAY_SECONDS, options=options,
        )
        return claims


def _unpadded(token: str) -> str:
    """Return a token without padding, which some libraries add against RFC 7515."""
    return token.rstrip("=")


def _signed_part(token: str) -> str:
    """Return the signed part of a token. Raises Unauthorized if the signature is not encoded canonically."""
    parts = _PARTS.fullmatch(token)
    signature = "" if parts is None else parts[2]
    try:
        read = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    except ValueError:
        read = b""
    if parts is None or not read or base64.urlsafe_b64encode(read).decode().rstrip("=") != signature:
        raise Unauthorized("The token is not three parts in base64url.")
    return parts[1]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _role(claims: dict[str, Any]) -> Role:
    role = claims.get("role")
    if role is not None and not isinstance(role, str):
        raise Unauthorized("The token's role must be a string.")
    return ROLES_BY_NAME.get(role or "", Role.NONE)


def parse_tenant(tenant: object) -> str | None:
    """Return the tenant that a claim names, None for all. Raises Unauthorized."""
    if tenant == "*":
        return None
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise Unauthorized("The token's tenant must be a tenant's name, or * for all.")
    return tenant


def issue(
    secret: str, *, role: str, sub: str, tenant: str | None, lifetime: timedelta, issuer: str | None = None,
    audience: str | None = None,
) -> str:
    """Return a token signed with the secret. Raises Misconfigured if the key is not a secret."""
    key = one_key(secret)
    if key.algorithms != ("HS256",):
        raise Misconfigured("the key is a public key: only the owner of the private key can create tokens")
    now = int(time.time())
    claims: dict[str, Any] = {"sub": sub, "role": role, "iat": now, "exp": now + int(lifetime.total_seconds())}
    claims |= {} if tenant is None else {"tenant": tenant}
    claims |= {} if issuer is None else {"iss": issuer}
    claims |= {} if audience is None else {"aud": audience}
    return jwt.encode(claims, key.value, algorithm="HS256")
