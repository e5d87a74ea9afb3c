"""Reject weak secrets and encoded public keys: a public key used as a secret would let anyone sign tokens."""

import base64
import binascii
import re
from contextlib import suppress

MIN_BYTES = 32
_MIN_DISTINCT = 8  # characters; a random secret in hexadecimal digits has about 14
_MIN_PERIOD = 16  # characters after which a secret may repeat itself
_SSH = re.compile(r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+\s+AAAA", re.IGNORECASE)
_SSH_BYTES = re.compile(rb"\0\0\0.(?:ssh|ecdsa|sk-)", re.DOTALL)
_DER_SEQUENCE = 0x30
_DER_LONG = 0x80  # the length itself takes some bytes


def secret_problem(text: str) -> str | None:
    """Return why a string cannot be the signing secret, None if it can."""
    if len(text.encode()) < MIN_BYTES:
        return f"must have at least {MIN_BYTES} bytes, or be a PEM public key"
    kind = _key_kind(text)
    if kind is not None:
        return f"is {kind}, not a secret: set a PEM public key (BEGIN PUBLIC KEY), or SCHEDULER_JWKS_FILE"
    if len(set(text)) < _MIN_DISTINCT or _period(text) < _MIN_PERIOD:
        return "is too easy to guess: it repeats itself; generate one with openssl rand -base64 48"
    return None


def _key_kind(text: str) -> str | None:
    """Return the kind of key in the text, in any encoding; None if it is not a key."""
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
    """Return the possible decodings of a text."""
    decodings = []
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    for altchars in (b"+/", b"-_"):
        try:
            decodings.append(base64.b64decode(padded, altchars, validate=True))
        except (binascii.Error, ValueError):
            continue
    with suppress(ValueError):
        decodings.append(bytes.fromhex(text.replace(":", "")))
    return decodings


def _is_der(data: bytes) -> bool:
    """Return whether the bytes are exactly one ASN.1 sequence."""
    if len(data) < MIN_BYTES or data[0] != _DER_SEQUENCE:
        return False
    if data[1] < _DER_LONG:
        return data[1] + 2 == len(data)
    size = data[1] - _DER_LONG
    return int.from_bytes(data[2 : 2 + size], "big") + 2 + size == len(data)


def _period(text: str) -> int:
    """Return the length of the repeated part of a text; the text's length if it does not repeat."""
    return next((size for size in range(1, _MIN_PERIOD) if text[size:] == text[:-size]), len(text))
