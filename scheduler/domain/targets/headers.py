"""The headers that a job may give its webhook."""

import re
from collections.abc import Mapping

from scheduler.domain.targets.placeholders import SECRET, placeholders

MOST_HEADERS = 100
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
# They are the connection's own, or would let a job sign for us.
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_OUR_PREFIX = "webhook-"


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError over the first header that cannot be sent, or that is not the job's to set."""
    if len(headers) > MOST_HEADERS:
        raise ValueError(f"may have at most {MOST_HEADERS} headers")
    for name, value in headers.items():
        shown = name[:80].encode("ascii", "backslashreplace").decode()
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shown!r} is not a header's name")
        if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIX):
            raise ValueError(f"{shown} is set by the worker and must not be given")
        if not sendable(value):
            raise ValueError(f"{shown} must not have line breaks or control characters")
        for found in placeholders(value):
            if not found.startswith(SECRET):
                raise ValueError(f"{shown}: {{{{{found[:80]}}}}} is not filled in here; a header may have "
                                 f"{{{{secret.NAME}}}}")


def sendable(value: str) -> bool:
    """Tell whether a header can have this value."""
    return not _CONTROL.search(value)
