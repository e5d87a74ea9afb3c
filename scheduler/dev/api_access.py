"""Access to the API of `scheduler dev`: its settings, a token for the user, and a link that logs in once."""

import json
import secrets
import socket
import urllib.request
from collections.abc import Mapping
from datetime import timedelta

from scheduler.api.keys import key_source
from scheduler.api.problems import Unauthorized
from scheduler.api.tokens import TokenVerifier, issue
from scheduler.domain.errors import Misconfigured
from scheduler.settings import Settings

_SECONDS = 30.0
_DEFAULT_PORT = 8080
_KEYS = ("SCHEDULER_JWT_KEY", "SCHEDULER_JWT_KEY_FILE", "SCHEDULER_JWKS_FILE", "SCHEDULER_JWKS_URL")
_TOKEN_LIFETIME = timedelta(hours=24)


def api_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a private API: a random secret unless a key is set, and the usual port if free."""
    settings = {"API_HOST": "127.0.0.1"}
    if not any(given.get(name) for name in _KEYS):
        settings["SCHEDULER_JWT_KEY"] = secrets.token_urlsafe(48)
    if not given.get("API_PORT"):
        settings["API_PORT"] = str(_DEFAULT_PORT if _free(_DEFAULT_PORT) else 0)
    return settings


def check_key(config: Settings) -> None:
    """Raise Misconfigured if the API would not start with this key."""
    key_source(config)


def admin_token(config: Settings) -> str:
    """Return an admin token for all tenants. Raises Misconfigured if the API would not accept our tokens."""
    if config.jwt_key is None:
        name = "SCHEDULER_JWKS_FILE" if config.jwks_file else "SCHEDULER_JWKS_URL"
        raise Misconfigured(f"{name} holds public keys, which cannot sign a token")
    if "-----BEGIN" in config.jwt_key:
        raise Misconfigured("SCHEDULER_JWT_KEY is a public key, which cannot sign a token")
    token = issue(config.jwt_key, role="admin", sub="dev", tenant=None, lifetime=_TOKEN_LIFETIME,
                  issuer=config.jwt_issuer, audience=config.jwt_audience)
    try:
        TokenVerifier(key_source(config), config.jwt_issuer, config.jwt_audience,
                      not_before=config.jwt_not_before).identify(token)
    except Unauthorized as error:
        raise Misconfigured(f"the API rejects it: {error}") from None
    return token


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def login_link(api_url: str, token: str) -> str:
    """Return an address that logs in as the token's user, once."""
    request = urllib.request.Request(  # noqa: S310 - our own process
        f"{api_url}/login/link", method="POST", headers={"Authorization": f"Bearer {token}"}
    )
    # Ignore proxies from the environment: the process is on this machine.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=_SECONDS) as response:
        return api_url + str(json.load(response)["path"])
