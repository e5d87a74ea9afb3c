"""Validate the headers of a webhook."""

import re
from collections.abc import Mapping

from scheduler.domain.targets.placeholders import SECRET, placeholders

MAX_HEADERS = 100
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
# Set by the connection, or part of our signature.
_RESERVED = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_RESERVED_PREFIX = "webhook-"


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError for the first header that cannot be sent or is reserved."""
    if len(headers) > MAX_HEADERS:
        raise ValueError(f"may have at most {MAX_HEADERS} headers")
    for name, value in headers.items():
        printable = name[:80].encode("ascii", "backslashreplace").decode()
        if not _NAME.fullmatch(name):
            raise ValueError(f"{printable!r} is not a header name")
        if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIX):
            raise ValueError(f"{printable} is set by the worker and must not be given")
        if not sendable(value):
            raise ValueError(f"{printable} must not have line breaks or control characters")
        for placeholder in placeholders(value):
            if not placeholder.startswith(SECRET):
                raise ValueError(f"{printable}: {{{{{placeholder[:80]}}}}} is not substituted in headers; use "
                                 f"{{{{secret.NAME}}}}")


def sendable(value: str) -> bool:
    """Return whether a header can have this value."""
    return not _CONTROL.search(value)
