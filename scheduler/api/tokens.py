"""From a bearer's token to who it is, or to why not; and tokens for those who have the secret."""

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
from scheduler.api.keys import Key, Keys, one_key
from scheduler.api.problems import Away, Unauthorized
from scheduler.domain.errors import Misconfigured, Unavailable

LEEWAY_SECONDS = 60
LONGEST_TOKEN = 8192  # characters
LONGEST_SUB = 200
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ROLES = {role.name.lower(): role for role in Role if role is not Role.NONE}
ROLES = tuple(_ROLES)
_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class _Known:
    """A token that was found good: what it says, by which keys, since when and until when."""

    sub: str
    role: Role
    tenant: str | None
    digest: str
    keys: float
    since: float
    until: float


class Tokens:
    """Verifies tokens by the keys of the settings; a good one is known until it or the keys are old."""

    def __init__(
        self, keys: Keys, issuer: str | None = None, audience: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._lock = threading.Lock()

    def identify(self, token: str, address: str | None = None) -> Identity:
        """Return whose token it is; raise Unauthorized, or Away where no key can be had."""
        return self.known(token, address) or self._judged(token, address)

    def known(self, token: str, address: str | None = None) -> Identity | None:
        """Return whose token it is if it was verified before and still holds; None: it has to be verified."""
        found = self._known.get(_digest(token))
        if found is None or found.keys != self._keys.version() or not found.since <= self._clock() < found.until:
            return None
        return Identity(found.sub, found.role, found.tenant, found.digest, address)

    def _judged(self, token: str, address: str | None) -> Identity:
        if len(token) > LONGEST_TOKEN:
            raise Unauthorized(f"The token has more than {LONGEST_TOKEN:,} characters.")
        version, now = self._keys.version(), self._clock()
        claims = self._verified(token)
        sub = claims["sub"]
        if not isinstance(sub, str) or not 0 < len(sub) <= LONGEST_SUB or not sub.isprintable():
            raise Unauthorized(f"The token's sub must be a text of 1 to {LONGEST_SUB} characters.")
        digest = _digest(token)
        who = Identity(sub, _role(claims), _tenant(claims), digest.hex()[:32], address)
        if version is not None:
            until = int(claims["exp"]) + LEEWAY_SECONDS
            known = _Known(sub, who.role, who.tenant, who.token, version, now, until)
            with self._lock:
                if len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[digest] = known
        return who

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
            raise Away(f"Tokens cannot be verified at the moment: {error}") from None
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
