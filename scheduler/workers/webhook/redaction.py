"""Replace the values of a request's secrets in its response.

Only the secrets that the request used are replaced. Otherwise a tenant could use its own endpoint to test guesses
of other tenants' secrets.
"""

import base64
import binascii
import html
import json
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, quote_plus

MASK = "***"
MIN_LENGTH = 4  # characters; replacing shorter values would garble any response
_FILLER = "\ufdd0"  # a noncharacter: keeps the length of a replaced value until the text is cut
_MIN_ALIGNED = 8  # bytes; a shorter value determines too few characters of a base64 text


class Redaction:
    """The values of secrets in the encodings in which an endpoint may echo them."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value)}
        self._forms = sorted(forms, key=len, reverse=True)
        # Bytes of the longest form; UTF-16 takes twice as many as UTF-8 for ASCII.
        self.longest = 2 * max((len(form.encode("utf-8", "replace")) for form in forms), default=0)

    def text(self, text: str) -> str:
        """Return the text with every value replaced by `***`."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def cut_text(self, text: str, characters: int) -> str:
        """Return the first characters of a text, redacted; a value across the cut is removed completely."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK + _FILLER * (len(form) - len(MASK)))
        return text[:characters].replace(_FILLER, "")


@lru_cache(maxsize=1024)
def redaction_of(values: tuple[str, ...]) -> Redaction:
    """Return the cached redaction of these values."""
    return Redaction(values)


def _forms(value: str) -> Iterable[str]:
    """Yield a value unchanged, escaped and encoded; and its decoded form if it is base64."""
    if len(value) < MIN_LENGTH:
        return
    raw = value.encode("utf-8", "surrogatepass")
    escaped = {value, html.escape(value), html.escape(value, quote=False), json.dumps(value)[1:-1],
               json.dumps(value, ensure_ascii=False)[1:-1]}
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        escaped |= {encoded, _lower_escapes(encoded)}
    yield from escaped
    yield raw.hex()
    yield from _base64_forms(raw)
    yield from _decoded(value)


def _lower_escapes(text: str) -> str:
    first, *others = text.split("%")
    return "%".join((first, *(part[:2].lower() + part[2:] for part in others)))


def _base64_forms(raw: bytes) -> Iterable[str]:
    """Yield a value in base64, alone and at each of three alignments inside a longer text."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode().rstrip("=")
        if len(raw) >= _MIN_ALIGNED:
            for before in range(3):
                text = encode(b"\0" * before + raw).decode().rstrip("=")
                # The characters at the ends also depend on the adjacent bytes.
                yield text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]


def _decoded(value: str) -> Iterable[str]:
    """Yield the decoded value: `Basic` credentials or a signing key."""
    encoded = value.removeprefix("whsec_")
    if encoded != value:
        yield encoded
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return
    if encoded != value:
        yield raw.hex()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    if len(text) >= MIN_LENGTH and text.isprintable():
        yield text
        user, colon, password = text.partition(":")
        if colon and user and len(password) >= MIN_LENGTH:
            yield password
