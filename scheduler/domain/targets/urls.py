"""Validate webhook URLs and substitute placeholders in them."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\]")
_NUMERIC = re.compile(r"(?:(?:0x[0-9a-f]*|[0-9]+)(?:\.|\Z)){1,5}", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_MAX_NAME = 253
# Characters that a path or a query may contain unencoded; `%` is for encoded ones.
_SAFE = "%/:?=&~+!$,;'()*@[]-._"


def check_url(url: str) -> None:
    """Raise ValueError if a webhook cannot have this URL."""
    if _UNPRINTABLE.search(url):
        raise ValueError("must not have spaces, control characters or backslashes; encode them, such as %20")
    if "{{" in url.split("://", 1)[-1].split("/", 1)[0].split("?", 1)[0]:
        raise ValueError("may have placeholders only in its path and query")
    parts = _split(url)
    if parts.scheme not in _PORTS:
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not have user:password; use a header with {{secret.NAME}}")
    host = ascii_host(parts)
    if not _HOST.fullmatch(host) or len(host) > _MAX_NAME:
        raise ValueError("must have a host: a name or an address")


@lru_cache(maxsize=4096)
def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("must be a URL like https://example.org/path") from None
    if port == 0:
        raise ValueError("must not have the port 0")
    return parts


def ascii_host(parts: SplitResult) -> str:
    """Return the host for a request: lower case, international names encoded, IPv6 in brackets."""
    host = parts.hostname or ""
    if ":" in host:
        return f"[{host}]"
    try:
        # Encoding never shortens a name, and takes milliseconds for a long one.
        if len(host) > _MAX_NAME:
            return ""
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""
    return _dotted_quad(name) if _NUMERIC.fullmatch(name) else name


def _dotted_quad(host: str) -> str:
    """Normalize an IPv4 address as browsers do: 127.1, 0x7f.1 and 2130706433 are the same."""
    *firsts, last = (_number(part) for part in host.rstrip(".").split("."))
    if len(firsts) > 3 or max(firsts, default=0) > 255 or last >= 256 ** (4 - len(firsts)):  # noqa: PLR2004 - bytes
        return ""
    value = last + sum(number << 8 * (3 - index) for index, number in enumerate(firsts))
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _number(part: str) -> int:
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    try:
        return int(part, 8 if part.startswith("0") else 10)
    except ValueError:
        return 2**32  # 09: neither a number nor a name


@lru_cache(maxsize=4096)
def endpoint(url: str) -> str:
    """Return host and port, the only part of a URL that logs contain."""
    parts = _split(url)
    return f"{ascii_host(parts)}:{parts.port or _PORTS[parts.scheme]}"


def host_name(url: str) -> str:
    """Return the host alone, without brackets."""
    return ascii_host(_split(url)).strip("[]")


def filled_url(url: str, query: Mapping[str, str], event: Mapping[str, Any]) -> str:
    """Return the URL with placeholders substituted; a value never leaves its path segment or parameter."""
    parts = _split(url)
    path = quote(fill(parts.path, event, _encoded), safe=_SAFE) or "/"
    if "{{" in parts.path and _dotted(path) > _dotted(parts.path):
        raise UnknownPlaceholder("a placeholder in the path has the value . or .., which would change the path")
    queries = [quote(fill(parts.query, event, _encoded), safe=_SAFE)] if parts.query else []
    if query:
        queries.append(urlencode([(name, fill(text, event)) for name, text in query.items()], quote_via=quote))
    port = "" if parts.port is None else f":{parts.port}"
    query_text = f"?{'&'.join(queries)}" if queries else ""
    return f"{parts.scheme}://{ascii_host(parts)}{port}{path}{query_text}"


def _encoded(text: str) -> str:
    return quote(text, safe="")


def _dotted(path: str) -> int:
    return sum(1 for segment in path.split("/") if segment.lower().replace("%2e", ".") in (".", ".."))
