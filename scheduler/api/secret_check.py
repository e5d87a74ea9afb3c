"""Tells secrets from public keys in other clothes: whoever knows a public key could sign tokens with it."""

import base64
import binascii
import re
from contextlib import suppress

LEAST_BYTES = 32
_LEAST_DISTINCT = 8  # characters; a random secret in hexadecimal digits has about 14
_LEAST_PERIOD = 16  # characters after which a text may repeat itself
_SSH = re.compile(r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+\s+AAAA", re.IGNORECASE)
_SSH_BYTES = re.compile(rb"\0\0\0.(?:ssh|ecdsa|sk-)", re.DOTALL)
_DER_SEQUENCE = 0x30
_DER_LONG = 0x80  # the length itself takes some bytes


def secret_problem(text: str) -> str | None:
    """Say why a text cannot be the secret that tokens are signed with; None if it can."""
    if len(text.encode()) < LEAST_BYTES:
        return f"must have at least {LEAST_BYTES} bytes, or be a PEM public key"
    kind = _key_kind(text)
    if kind is not None:
        return f"is {kind}, which is no secret: give a PEM public key (BEGIN PUBLIC KEY), or SCHEDULER_JWKS_FILE"
    if len(set(text)) < _LEAST_DISTINCT or _period(text) < _LEAST_PERIOD:
        return "is too easy to guess: it repeats itself; openssl rand -base64 48 makes a good one"
    return None


def _key_kind(text: str) -> str | None:
    """Return what kind of key the text is, whichever way it is encoded."""
    if _SSH.match(text.strip()):
        return "an SSH key"
    if _is_json(text.encode()):
        return "a JSON Web Key"
    for data in _decoded("".join(text.split())):
        if _is_der(data):
            return "a key or a certificate in DER without its PEM lines"
        if _SSH_BYTES.match(data):
            return "an SSH key"
        if data.lstrip().startswith(b"-----BEGIN"):
            return "a PEM file encoded once more"
        if _is_json(data):
            return "a JSON Web Key encoded once more"
    return None


def _is_json(data: bytes) -> bool:
    return data.lstrip().startswith(b"{") and b'"kty"' in data


def _decoded(text: str) -> list[bytes]:
    """Return the bytes that a text may stand for."""
    found = []
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    for altchars in (b"+/", b"-_"):
        try:
            found.append(base64.b64decode(padded, altchars, validate=True))
        except (binascii.Error, ValueError):
            continue
    with suppress(ValueError):
        found.append(bytes.fromhex(text.replace(":", "")))
    return found


def _is_der(data: bytes) -> bool:
    """Tell whether the bytes are one ASN.1 sequence, no longer and no shorter."""
    if len(data) < LEAST_BYTES or data[0] != _DER_SEQUENCE:
        return False
    if data[1] < _DER_LONG:
        return data[1] + 2 == len(data)
    size = data[1] - _DER_LONG
    return int.from_bytes(data[2 : 2 + size], "big") + 2 + size == len(data)


def _period(text: str) -> int:
    """Return after how many characters the text begins again; its length if it does not."""
    return next((size for size in range(1, _LEAST_PERIOD) if text[size:] == text[:-size]), len(text))
