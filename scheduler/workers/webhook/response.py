"""What an endpoint's answer means for the run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.webhook.redaction import Redaction

MOST_BODY = 16 * 1024
MOST_HEADERS = 4 * 1024
_GONE, _TOO_MANY, _UNAVAILABLE = 410, 429, 503
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
# Python knows many more, some of them slow: an endpoint does not choose among those.
_CHARSET = re.compile(
    r";\s*charset\s*=\s*\"?(utf-?8|utf-16(?:le|be)?|(?:us-)?ascii|iso-8859-[0-9]{1,2}|latin-?1|(?:windows-|cp)125[0-9])"
    r"\"?\s*(?:;|$)", re.IGNORECASE,
)
_MOST_DIGITS = 9


@dataclass(slots=True)
class WebhookResponse:
    """What came back, cut to what is kept; the headers' names in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes  # MOST_BODY bytes, and a little more if there is a redaction
    seconds: float
    redaction: Redaction | None = None

    def output(self) -> dict[str, Any]:
        """Return what the result keeps of it."""
        return {
            "status_code": self.status, "headers": self._kept_headers(), "body": printable_text(self._body()),
            "duration_ms": round(self.seconds * 1000, 3),
        }

    def _kept_headers(self) -> dict[str, str]:
        if self.redaction is None:
            return _kept(self.headers)
        hide = self.redaction.text
        return _kept({hide(name): hide(value) for name, value in self.headers.items()})

    def _body(self) -> str:
        kind = self.headers.get("content-type")
        kept = _decoded(self.body[:MOST_BODY], kind)
        if self.redaction is None:
            return kept
        return self.redaction.cut_text(_decoded(self.body, kind), len(kept))

    def phrase(self) -> str:
        """Return the status with its reason phrase."""
        reason = self.reason if self.redaction is None else self.redaction.text(self.reason)
        return f"{self.status} {printable_text(reason)[:100]}".strip()


def decide_outcome(answer: WebhookResponse, endpoint: str, max_delay: float, now: datetime) -> WorkOutcome:
    """Return what became of an attempt that was answered."""
    output = answer.output()
    match answer.status:
        case status if 200 <= status < 300:  # noqa: PLR2004 - 2xx
            return WorkOutcome.succeeded(output)
        case status if status == _GONE:
            return WorkOutcome.failed(f"{endpoint} answered 410 Gone: given up", retry=False, output=output)
        case status if 300 <= status < 400:  # noqa: PLR2004 - 3xx
            error = f"{endpoint} answered {status}: redirects are not followed"
            return WorkOutcome.failed(error, output=output)
        case status:
            retry_in = None
            if status in (_TOO_MANY, _UNAVAILABLE):
                retry_in = retry_after(answer.headers.get("retry-after"), max_delay, now)
            return WorkOutcome.failed(f"{endpoint} answered {answer.phrase()}", retry_in=retry_in, output=output)


def retry_after(text: str | None, most: float, now: datetime) -> float | None:
    """Return the seconds that Retry-After asks for, up to `most`; None where it is missing, bad or past."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[-_MOST_DIGITS:]) if len(text) <= _MOST_DIGITS else most, most)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = (when - now).total_seconds()
    return min(seconds, most) if seconds >= 0 else None


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    room = MOST_HEADERS
    for name, value in headers.items():
        room -= len(name) + len(value)
        if room < 0:
            break
        found[printable_text(name)] = printable_text(value)
    return found


def _decoded(body: bytes, content_type: str | None) -> str:
    found = _CHARSET.search(content_type) if content_type else None
    try:
        return body.decode(found[1] if found else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def printable_text(text: str) -> str:
    """Return text that can be stored and shown whatever an endpoint sent."""
    return text if text.isprintable() else _UNPRINTABLE.sub("\ufffd", text)
