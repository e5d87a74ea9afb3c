"""A link to the console that logs in once, so that nobody has to copy a token to have a look."""

import json
import secrets
import socket
import urllib.request
from collections.abc import Mapping
from datetime import timedelta

from scheduler.api.tokens import issue

_SECONDS = 30.0
_USUAL_PORT = 8080


def api_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings for an API of our own: a secret that nobody knows, and the usual port if that is free."""
    made = {"API_HOST": "127.0.0.1"}
    if not any(given.get(name) for name in ("SCHEDULER_JWT_KEY", "SCHEDULER_JWT_KEY_FILE", "SCHEDULER_JWKS_FILE",
                                            "SCHEDULER_JWKS_URL")):
        made["SCHEDULER_JWT_KEY"] = secrets.token_urlsafe(48)
    if not given.get("API_PORT"):
        made["API_PORT"] = str(_USUAL_PORT if _free(_USUAL_PORT) else 0)
    return made


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def login_link(port: int, secret: str) -> str:
    """Return an address that logs in as an admin, once."""
    token = issue(secret, role="admin", sub="dev", tenant=None, lasts=timedelta(days=1))
    base = f"http://127.0.0.1:{port}"
    request = urllib.request.Request(  # noqa: S310 - our own process
        f"{base}/login/link", method="POST", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
        return base + str(json.load(answer)["path"])
