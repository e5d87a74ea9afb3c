"""From a bearer's token to who it is, or to why not; and tokens for those who have the secret."""

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
LONGEST_LIFETIME = timedelta(days=400)  # there is no way to take a single token back before it expires
LONGEST_TOKEN = 8192  # characters
LONGEST_SUB = 200
_PARTS = re.compile(r"([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ROLES = {role.name.lower(): role for role in Role if role is not Role.NONE}
ROLES = tuple(_ROLES)
_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """A token that was found good: what it says, by which keys, since when and until when."""

    sub: str
    role: Role
    tenant: str | None
    digest: str
    keys: float
    since: float
    until: float


class TokenVerifier:
    """Verifies tokens by the keys of the settings; a good one is known until it or the keys are old."""

    def __init__(
        self, keys: KeySource, issuer: str | None = None, audience: str | None = None,
        clock: Callable[[], float] = time.time, not_before: float | None = None,
    ) -> None:
        """Take the keys, and from when on a token must have been issued."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._not_before = not_before
        self._known: dict[bytes, _VerifiedToken] = {}
        self._lock = threading.Lock()

    def identify(self, token: str, address: str | None = None) -> Identity:
        """Return whose token it is; raise Unauthorized, or ServiceUnavailable where no key can be had."""
        token = _unpadded(token)
        return self.known(token, address) or self._judged(token, address)

    def may_wait(self, token: str) -> bool:
        """Tell whether `identify` would have to wait until keys are fetched."""
        try:
            if len(token) > LONGEST_TOKEN:
                return False
            head = jwt.get_unverified_header(_unpadded(token))
            return self._keys.may_wait(head.get("kid"), str(head.get("alg")))
        except Exception:  # noqa: BLE001 - `identify` says what is wrong with it
            return False

    def known(self, token: str, address: str | None = None) -> Identity | None:
        """Return whose token it is if it was verified before and still holds; None: it has to be verified."""
        found = self._known.get(_digest(_unpadded(token)))
        if found is None or found.keys != self._keys.version() or not found.since <= self._clock() < found.until:
            return None
        return Identity(found.sub, found.role, found.tenant, found.digest, address)

    def _judged(self, token: str, address: str | None) -> Identity:
        if len(token) > LONGEST_TOKEN:
            raise Unauthorized(f"The token has more than {LONGEST_TOKEN:,} characters.")
        version, now = self._keys.version(), self._clock()
        signed = _signed_part(token)
        claims = self._verified(token)
        self._check_lifetime(claims, now)
        sub = claims["sub"]
        if not isinstance(sub, str) or not 0 < len(sub) <= LONGEST_SUB or not sub.isprintable():
            raise Unauthorized(f"The token's sub must be a text of 1 to {LONGEST_SUB} characters.")
        digest = _digest(token)
        # Requests are counted by what was signed: a signature may have several spellings, this has one.
        counted = _digest(signed).hex()[:32]
        who = Identity(sub, _role(claims), _tenant(claims), counted, address)
        if version is not None:
            until = int(claims["exp"]) + LEEWAY_SECONDS
            known = _VerifiedToken(sub, who.role, who.tenant, who.token, version, now, until)
            with self._lock:
                if len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[digest] = known
        return who

    def _check_lifetime(self, claims: dict[str, Any], now: float) -> None:
        """Raise Unauthorized for a token that lasts too long, or was issued before the cut-off."""
        issued = claims.get("iat")
        lasts = int(claims["exp"]) - min(now, now if issued is None else float(issued))
        if lasts > LONGEST_LIFETIME.total_seconds() + LEEWAY_SECONDS:
            raise Unauthorized(f"The token is good for more than {LONGEST_LIFETIME.days} days.")
        if self._not_before is None:
            return
        if issued is None:
            raise Unauthorized("The token has no iat, which SCHEDULER_JWT_NOT_BEFORE asks for.")
        if float(issued) < self._not_before:
            raise Unauthorized("The token was issued before SCHEDULER_JWT_NOT_BEFORE.")

    def _verified(self, token: str) -> dict[str, Any]:
        try:
            head = jwt.get_unverified_header(token)
            algorithm, kid = head.get("alg"), head.get("kid")
            found = self._keys.find(kid, algorithm) if isinstance(algorithm, str) else ()
            problem = "The token was not signed by a key that is known here, or not by its key's own algorithm."
            for key in found:
                try:
                    return self._decoded(token, key)
                except jwt.InvalidSignatureError:
                    continue
        except Unavailable as error:
            raise ServiceUnavailable(f"Tokens cannot be verified at the moment: {error}") from None
        except jwt.PyJWTError as error:
            problem = f"The token is not good: {error}."
        except (ValueError, TypeError, ArithmeticError, RecursionError, AttributeError):
            # Whatever a hostile one can bring about in the library is no more than a bad token.
            problem = "The token cannot be read."
        raise Unauthorized(problem.encode("ascii", "backslashreplace").decode()[:300])

    def _decoded(self, token: str, key: Key) -> dict[str, Any]:
        options: Any = {"require": ["exp", "sub"], "verify_aud": self._audience is not None, "verify_sub": True}
        claims: dict[str, Any] = jwt.decode(
            token, key.value, algorithms=list(key.algorithms), issuer=self._issuer, audience=self._audience,
            leeway=LEEWAY_SECONDS, options=options,
        )
        return claims


def _unpadded(token: str) -> str:
    """Return a token without padding, which RFC 7515 has not but many a library adds."""
    return token.rstrip("=")


def _signed_part(token: str) -> str:
    """Return what is signed of a token; raise Unauthorized where its signature has another spelling than usual."""
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
        raise Unauthorized("The token's role must be a text.")
    return _ROLES.get(role or "", Role.NONE)


def _tenant(claims: dict[str, Any]) -> str | None:
    tenant = claims.get("tenant", "*")
    if tenant == "*":
        return None
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise Unauthorized("The token's tenant must be a tenant's name, or * for all.")
    return tenant


def issue(
    secret: str, *, role: str, sub: str, tenant: str | None, lasts: timedelta, issuer: str | None = None,
    audience: str | None = None,
) -> str:
    """Return a token signed with the secret; raise Misconfigured where the key is not one."""
    key = one_key(secret)
    if key.algorithms != ("HS256",):
        raise Misconfigured("the key is a public one: only who has its private half can make tokens")
    now = int(time.time())
    claims: dict[str, Any] = {"sub": sub, "role": role, "iat": now, "exp": now + int(lasts.total_seconds())}
    claims |= {} if tenant is None else {"tenant": tenant}
    claims |= {} if issuer is None else {"iss": issuer}
    claims |= {} if audience is None else {"aud": audience}
    return jwt.encode(claims, key.value, algorithm="HS256")
