"""Sign-in with OpenID Connect: the authorization code flow with PKCE, for the console.

Written on PyJWT rather than Authlib: each fetch needs the limits in size, time and redirects of `bounded_http`.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import jwt

from scheduler.api.bounded_http import HttpStatusError, check_url, fetch
from scheduler.api.identity import Role
from scheduler.api.keys import KeySet
from scheduler.api.problems import BadRequest, Forbidden, ServiceUnavailable, Unauthorized
from scheduler.api.tokens import LEEWAY_SECONDS, MAX_SUB, ROLES_BY_NAME, parse_tenant
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.ops.logs import get_logger
from scheduler.settings import Settings

log = get_logger(__name__)

SCOPE = "openid profile email"
PENDING_SECONDS = 600  # from the redirect to the provider until its callback
_FRESH_SECONDS = 300.0  # for the provider's metadata
_RETRY_SECONDS = 5.0  # between attempts to read it
_MAX_CODE = 4096  # characters
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_DEFAULT_TENANT_CLAIM = "tenant"

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OidcClient:
    """This console as the provider knows it, and how its claims become a role and a tenant."""

    issuer: str
    client_id: str
    client_secret: str | None
    role_claim: str
    role_map: Mapping[str, Role]  # empty: the claim's values are names of roles
    tenant_claim: str | None  # None: `tenant`, which may be absent
    redirect_url: str | None

    @classmethod
    def of(cls, settings: Settings) -> "OidcClient | None":
        """Return the client, or None if no issuer is set. Raises Misconfigured."""
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            if settings.oidc_issuer is not None or settings.oidc_client_id is not None:
                raise Misconfigured("set both SCHEDULER_OIDC_ISSUER and SCHEDULER_OIDC_CLIENT_ID, or neither")
            return None
        if not check_url(settings.oidc_issuer):
            raise Misconfigured("SCHEDULER_OIDC_ISSUER must be an https URL (http only on loopback)")
        unknown = sorted({role for _, role in settings.oidc_role_map} - ROLES_BY_NAME.keys())
        if unknown:
            raise Misconfigured(f"SCHEDULER_OIDC_ROLE_MAP names unknown roles: {', '.join(unknown)}; use viewer, "
                                "operator or admin")
        return cls(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret, settings.oidc_role_claim,
            {group: ROLES_BY_NAME[role] for group, role in settings.oidc_role_map}, settings.oidc_tenant_claim,
            settings.oidc_redirect_url,
        )


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in between the redirect to the provider and its callback; it lives in the browser's cookie."""

    state: str
    nonce: str
    verifier: str  # of PKCE
    then: str  # the page to open afterwards
    began_at: int

    @classmethod
    def new(cls, then: str) -> "PendingSignIn":
        """Return a sign-in with random values."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, then, int(time.time()))


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The user of a completed sign-in."""

    sub: str
    role: Role
    tenant: str | None


class PendingCookie:
    """Writes a pending sign-in into a cookie and reads it back; any replica with the same secret can read it."""

    def __init__(self, secret: str | None) -> None:
        shared = secret or secrets.token_urlsafe(32)
        self._key = hashlib.sha256(b"scheduler sign-in\0" + shared.encode()).digest()

    def write(self, pending: PendingSignIn) -> str:
        """Return the cookie's value."""
        fields = [pending.state, pending.nonce, pending.verifier, pending.then, pending.began_at]
        body = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
        return f"{body}.{self._sign(body)}"

    def read(self, value: str | None, state: str) -> PendingSignIn:
        """Return the sign-in of this state. Raises BadRequest if it is missing, expired or has another state."""
        body, _, signature = (value or "").partition(".")
        if not hmac.compare_digest(self._sign(body).encode(), signature.encode("utf-8", "replace")):
            raise BadRequest("This sign-in was not started in this browser, or is complete: sign in again.")
        pending = PendingSignIn(*json.loads(base64.urlsafe_b64decode(body)))
        if not hmac.compare_digest(pending.state.encode(), state.encode("utf-8", "replace")):
            raise BadRequest("This response belongs to another sign-in: sign in again.")
        if time.time() - pending.began_at > PENDING_SECONDS:
            raise BadRequest("The sign-in took longer than 10 minutes: sign in again.")
        return pending

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class OidcProvider:
    """An OpenID Connect provider. Its methods block: call them on a separate thread."""

    def __init__(self, client: OidcClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._metadata: Mapping[str, Any] | None = None
        self._read_at = self._tried_at = -_FRESH_SECONDS
        self._problem = "not read yet"
        self._keys: KeySet | None = None

    def metadata(self) -> Mapping[str, Any]:
        """Return the provider's metadata, at most five minutes old. Raises ServiceUnavailable."""
        with self._lock:
            now = self._clock()
            if now - self._read_at > _FRESH_SECONDS and now - self._tried_at >= _RETRY_SECONDS:
                self._tried_at = now
                self._refresh()
            if self._metadata is None:
                raise ServiceUnavailable(f"The sign-in provider is unavailable: {self._problem}.")
            return self._metadata

    def _refresh(self) -> None:
        try:
            metadata = _parse_metadata(self.client.issuer, fetch(_metadata_url(self.client.issuer)))
        except (Unavailable, OSError, ValueError) as error:
            self._metadata, self._problem = None, str(error)[:300]
            log.warning("OpenID Connect provider is unavailable", problem=self._problem,
                        do="check SCHEDULER_OIDC_ISSUER and the provider")
            return
        if self._metadata is None or self._metadata["jwks_uri"] != metadata["jwks_uri"]:
            url = metadata["jwks_uri"]
            self._keys = KeySet(lambda: fetch(url))
        self._metadata, self._read_at = metadata, self._clock()

    def authorization_url(self, pending: PendingSignIn, redirect_uri: str) -> str:
        """Return the provider's address that the browser is sent to."""
        digest = hashlib.sha256(pending.verifier.encode()).digest()
        parameters = {
            "response_type": "code", "client_id": self.client.client_id, "redirect_uri": redirect_uri,
            "scope": SCOPE, "state": pending.state, "nonce": pending.nonce, "code_challenge_method": "S256",
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        }
        endpoint = str(self.metadata()["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    def sign_in(self, pending: PendingSignIn, code: str, redirect_uri: str) -> SignedIn:
        """Exchange the code and return the user. Raises Forbidden, BadRequest or ServiceUnavailable."""
        metadata = self.metadata()
        tokens = self._exchange(metadata, pending, code, redirect_uri)
        claims = self._verify(tokens.get("id_token"), pending.nonce)
        return self._user(claims, lambda: self._userinfo(metadata, tokens, claims["sub"]))

    def _exchange(
        self, metadata: Mapping[str, Any], pending: PendingSignIn, code: str, redirect_uri: str
    ) -> Mapping[str, Any]:
        if not 0 < len(code) <= _MAX_CODE:
            raise BadRequest("The provider's response has no usable code: sign in again.")
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri,
                "code_verifier": pending.verifier}
        headers = {}
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if self.client.client_secret is not None and "client_secret_basic" in methods:
            pair = f"{quote(self.client.client_id, safe='')}:{quote(self.client.client_secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_id"] = self.client.client_id
            if self.client.client_secret is not None:
                form["client_secret"] = self.client.client_secret
        try:
            return _json_object(fetch(metadata["token_endpoint"], form=form, headers=headers))
        except HttpStatusError as error:
            if error.status < 500:  # noqa: PLR2004 - the code is the user's, the client settings the operator's
                log.warning("OpenID Connect provider refused the code", status=error.status, reason=error.reason,
                            do="if it repeats, check the client id and secret")
                raise Forbidden("The provider refused this sign-in: its code has expired or was used. Sign in "
                                "again.") from None
            raise ServiceUnavailable(f"The sign-in provider responded {error.status}; retry.") from None
        except (Unavailable, OSError, ValueError) as error:
            raise ServiceUnavailable(f"The sign-in provider is unavailable: {error}") from None

    def _verify(self, id_token: object, nonce: str) -> Claims:
        """Return the claims of a valid ID token."""
        if not isinstance(id_token, str):
            raise Forbidden("The provider sent no ID token.")
        try:
            head = jwt.get_unverified_header(id_token)
            claims = self._decode(id_token, head.get("kid"), str(head.get("alg")))
        except Unavailable as error:
            raise ServiceUnavailable(f"The sign-in provider's keys are unavailable: {error}") from None
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError, AttributeError) as error:
            log.warning("ID token is invalid", problem=str(error)[:200], do="check the clocks and the client id")
            raise Forbidden("The provider's ID token is invalid: sign in again.") from None
        audience = claims["aud"]
        authorized = claims.get("azp", self.client.client_id)
        several = isinstance(audience, list) and len(audience) > 1
        if authorized != self.client.client_id or (several and "azp" not in claims):
            raise Forbidden("The provider's ID token was issued for another client.")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode("utf-8", "replace"), nonce.encode()):
            raise BadRequest("The provider's ID token belongs to another sign-in: sign in again.")
        return claims

    def _decode(self, id_token: str, kid: str | None, algorithm: str) -> Claims:
        keys: Sequence[Any] = ()
        if algorithm in _ALGORITHMS and self._keys is not None:
            keys = self._keys.find(kid, algorithm)
        for key in keys:
            try:
                claims: Claims = jwt.decode(
                    id_token, key.value, algorithms=[algorithm], issuer=self.client.issuer,
                    audience=self.client.client_id, leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "iat", "sub", "aud", "iss"]},
                )
            except jwt.InvalidSignatureError:
                continue
            return claims
        raise ValueError("it is signed by an unknown key")

    def _userinfo(self, metadata: Mapping[str, Any], tokens: Mapping[str, Any], sub: object) -> Claims:
        url, token = metadata.get("userinfo_endpoint"), tokens.get("access_token")
        if not isinstance(url, str) or not isinstance(token, str):
            return {}
        try:
            claims = _json_object(fetch(url, headers={"Authorization": f"Bearer {token}"}))
        except (Unavailable, OSError, ValueError) as error:
            raise ServiceUnavailable(f"The sign-in provider's userinfo is unavailable: {error}") from None
        if claims.get("sub") != sub:
            raise Forbidden("The provider's userinfo is for a different user.")
        return claims

    def _user(self, claims: Claims, userinfo: Callable[[], Claims]) -> SignedIn:
        """Return the user with its role and tenant; userinfo is read only if the ID token lacks a claim."""
        sub = claims["sub"]
        if not isinstance(sub, str) or not 0 < len(sub) <= MAX_SUB or not sub.isprintable():
            raise Forbidden(f"The provider's sub must be a string of 1 to {MAX_SUB} characters.")
        names = {self.client.role_claim, self.client.tenant_claim or _DEFAULT_TENANT_CLAIM}
        if any(claim(claims, name) is None for name in names):
            claims = {**userinfo(), **claims}
        return SignedIn(sub, self._role(claims), self._tenant(claims))

    def _role(self, claims: Claims) -> Role:
        value = claim(claims, self.client.role_claim)
        names = value if isinstance(value, list) else [value]
        roles = self.client.role_map or ROLES_BY_NAME
        granted = [roles[name] for name in names if isinstance(name, str) and name in roles]
        if not granted:
            raise Forbidden(f"Your account has no role here: its claim {self.client.role_claim} grants none.")
        return max(granted)

    def _tenant(self, claims: Claims) -> str | None:
        name = self.client.tenant_claim or _DEFAULT_TENANT_CLAIM
        tenant = claim(claims, name)
        if tenant is None and self.client.tenant_claim is not None:
            raise Forbidden(f"Your account has no tenant here: it has no claim {name}.")
        try:
            return parse_tenant("*" if tenant is None else tenant)
        except Unauthorized:
            raise Forbidden(f"Your account's claim {name} must be a tenant's name, or * for all.") from None


def claim(claims: Claims, name: str) -> object:
    """Return a claim by its name, or by its path such as realm_access.roles; None if it is absent."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _metadata_url(issuer: str) -> str:
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


def _parse_metadata(issuer: str, text: bytes) -> Mapping[str, Any]:
    metadata = _json_object(text)
    if metadata.get("issuer") != issuer:
        raise ValueError("its metadata names an issuer that differs from SCHEDULER_OIDC_ISSUER")
    for name in _ENDPOINTS:
        if not isinstance(metadata.get(name), str) or not check_url(metadata[name]):
            raise ValueError(f"its metadata has no usable {name}")
    return metadata


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    raise ValueError("its response is not a JSON object")
