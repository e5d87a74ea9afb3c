"""Fetch a small document from a trusted server over HTTP, limited in time, size and redirects."""

import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode, urlsplit

from scheduler.domain.errors import Unavailable

FETCH_SECONDS = 5.0
MAX_BYTES = 1_000_000


class HttpStatusError(Unavailable):
    """The server responded with an error status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"it responded {status} {reason}")
        self.status = status
        self.reason = reason


def check_url(url: str) -> bool:
    """Return whether no one on the network can change what is fetched: TLS, or loopback."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return bool(host)
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


class _TrustedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an address that `check_url` accepts, and never with a body or credentials."""

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Return the next request, or raise HTTPError."""
        if req.data is not None or req.has_header("Authorization"):
            raise urllib.error.HTTPError(newurl, code, "it redirects a request with credentials", headers, fp)
        if not check_url(newurl):
            raise urllib.error.HTTPError(newurl, code, "it redirects to an address that is not https", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_TrustedRedirects)


def fetch(url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the body of a GET, or of a POST of the form.

    Raises Unavailable (HttpStatusError for an error status), OSError, or ValueError if the body is too large.
    """
    body = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(  # noqa: S310 - the caller checks the scheme
        url, data=body, headers={"Accept": "application/json"} | dict(headers or {})
    )
    deadline = time.monotonic() + 2 * FETCH_SECONDS
    text = b""
    try:
        with _OPENER.open(request, timeout=FETCH_SECONDS) as response:
            while part := response.read1(MAX_BYTES):
                text += part
                if len(text) > MAX_BYTES:
                    raise ValueError(f"has more than {MAX_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise Unavailable("arrives too slowly")
            if response.length:
                raise Unavailable("was cut off")
    except urllib.error.HTTPError as error:
        with error:
            raise HttpStatusError(error.code, str(error.reason)[:200]) from None
    except HTTPException as error:
        raise Unavailable(f"is not a response by HTTP ({type(error).__name__})") from None
    return text
