"""Decide the outcome of an attempt from the endpoint's response."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.webhook.redaction import Redaction

MAX_BODY = 16 * 1024
MAX_HEADERS = 4 * 1024
_GONE, _TOO_MANY, _UNAVAILABLE = 410, 429, 503
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
# Python has many more codecs, some of them slow; an endpoint must not choose them.
_CHARSET = re.compile(
    r";\s*charset\s*=\s*\"?(utf-?8|utf-16(?:le|be)?|(?:us-)?ascii|iso-8859-[0-9]{1,2}|latin-?1|(?:windows-|cp)125[0-9])"
    r"\"?\s*(?:;|$)", re.IGNORECASE,
)
_MAX_DIGITS = 9


@dataclass(slots=True)
class WebhookResponse:
    """The beginning of a response; header names are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes  # MAX_BODY bytes, and a little more if there is a redaction
    seconds: float
    redaction: Redaction | None = None

    def output(self) -> dict[str, Any]:
        """Return the output of the result."""
        return {
            "status_code": self.status, "headers": self._headers(), "body": printable_text(self._body()),
            "duration_ms": round(self.seconds * 1000, 3),
        }

    def _headers(self) -> dict[str, str]:
        if self.redaction is None:
            return _limit_headers(self.headers)
        hide = self.redaction.text
        return _limit_headers({hide(name): hide(value) for name, value in self.headers.items()})

    def _body(self) -> str:
        content_type = self.headers.get("content-type")
        text = _decode(self.body[:MAX_BODY], content_type)
        if self.redaction is None:
            return text
        return self.redaction.cut_text(_decode(self.body, content_type), len(text))

    def phrase(self) -> str:
        """Return the status with its reason phrase."""
        reason = self.reason if self.redaction is None else self.redaction.text(self.reason)
        return f"{self.status} {printable_text(reason)[:100]}".strip()


def decide_outcome(response: WebhookResponse, endpoint: str, max_delay: float, now: datetime) -> WorkOutcome:
    """Return the outcome of an attempt with a response."""
    output = response.output()
    match response.status:
        case status if 200 <= status < 300:  # noqa: PLR2004 - 2xx
            return WorkOutcome.succeeded(output)
        case status if status == _GONE:
            return WorkOutcome.failed(f"{endpoint} returned 410 Gone: no retry", retry=False, output=output)
        case status if 300 <= status < 400:  # noqa: PLR2004 - 3xx
            error = f"{endpoint} returned {status}: redirects are not followed"
            return WorkOutcome.failed(error, output=output)
        case status:
            retry_in = None
            if status in (_TOO_MANY, _UNAVAILABLE):
                retry_in = retry_after(response.headers.get("retry-after"), max_delay, now)
            return WorkOutcome.failed(f"{endpoint} returned {response.phrase()}", retry_in=retry_in, output=output)


def retry_after(text: str | None, most: float, now: datetime) -> float | None:
    """Return the seconds of Retry-After, up to `most`; None if it is missing, invalid or past."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[-_MAX_DIGITS:]) if len(text) <= _MAX_DIGITS else most, most)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = (when - now).total_seconds()
    return min(seconds, most) if seconds >= 0 else None


def _limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    headers_kept: dict[str, str] = {}
    space = MAX_HEADERS
    for name, value in headers.items():
        space -= len(name) + len(value)
        if space < 0:
            break
        headers_kept[printable_text(name)] = printable_text(value)
    return headers_kept


def _decode(body: bytes, content_type: str | None) -> str:
    charset = _CHARSET.search(content_type) if content_type else None
    try:
        return body.decode(charset[1] if charset else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def printable_text(text: str) -> str:
    """Replace characters that cannot be stored or displayed."""
    return text if text.isprintable() else _UNPRINTABLE.sub("\ufffd", text)
