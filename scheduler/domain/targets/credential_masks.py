"""Recognise literal credentials by the name of their header or parameter, and mask them.

Secrets belong in the workers' file, as {{secret.NAME}}. A literal credential in a job is stored and sent as is,
but readers and audit entries see only a mask.
"""

import re
from collections.abc import Mapping
from typing import Any

from scheduler.domain.errors import Problem, Rejected

MASK = "***"
_SENSITIVE = frozenset({
    "auth", "authentication", "authorization", "cookie", "cookies", "credential", "credentials", "jwt", "passwd",
    "password", "pwd", "secret", "session", "sessionid", "sid", "sig", "signature", "token", "apikey", "accesskey",
})
_ENDINGS = ("token", "secret", "password", "apikey", "signature")
_OTHER_KEYS = frozenset({"idempotency", "cache", "partition", "public", "routing", "sort", "surrogate"})
# Not masked: only placeholders, after an optional Authorization scheme.
_NO_LITERAL = re.compile(r"(?:(?:bearer|basic|token|apikey|key|digest)\s+)?(?:\{\{[^{}]*\}\}\s*)*", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]*)")


def is_sensitive(name: str) -> bool:
    """Return whether a header or parameter with this name usually contains a credential."""
    camel_case = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+", name)
    parts = {part.lower() for part in camel_case} | set(re.split(r"[^a-z0-9]+", name.lower()))
    if parts & _SENSITIVE or any(part.endswith(_ENDINGS) for part in parts):
        return True
    return "key" in parts and not parts & _OTHER_KEYS


def mask_value(name: str, value: Any) -> Any:
    """Return the value of a header or parameter, or the mask."""
    literal = isinstance(value, str) and not _NO_LITERAL.fullmatch(value)
    return MASK if literal and is_sensitive(name) else value


def mask_url(url: str) -> str:
    """Return a URL with the credentials in its parameters masked."""
    return _PARAMETER.sub(lambda match: f"{match[1]}={mask_value(match[1], match[2])}", url)


def is_masked(name: str, value: str) -> bool:
    """Return whether the value of a header or parameter is the mask."""
    return value == MASK and is_sensitive(name)


def url_has_masks(url: str) -> bool:
    """Return whether a parameter of a URL is masked."""
    return any(is_masked(name, value) for name, value in _PARAMETER.findall(url))


def unmask_values(values: Mapping[str, str], before: Mapping[str, str], field: str) -> dict[str, str]:
    """Return the values, with masks replaced by the values in `before`. Raises Rejected, which names the field."""
    stored = {name.lower(): value for name, value in before.items()}
    return {
        name: stored.get(name.lower()) or _missing(field, name) if is_masked(name, value) else value
        for name, value in values.items()
    }


def unmask_url(url: str, before: str, field: str) -> str:
    """Return a URL with masks replaced by the parameters of `before`. Raises Rejected, which names the field."""
    stored: dict[str, list[str]] = {}
    for name, value in _PARAMETER.findall(before):
        stored.setdefault(name, []).append(value)

    def fill(match: "re.Match[str]") -> str:
        name, value = match[1], match[2]
        credential = stored[name].pop(0) if stored.get(name) else None
        if not is_masked(name, value):
            return match[0]
        return f"{name}={credential or _missing(field, name)}"

    return _PARAMETER.sub(fill, url)


def _missing(field: str, name: str) -> str:
    problem = f"{name[:80]} is {MASK}, which replaces a hidden value; give the value itself"
    raise Rejected([Problem(field, problem)])
