"""Validate the W3C trace context of a command."""

import re

# Version 00 has exactly these four fields; a later version may append more.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_TRACESTATE = re.compile(r"[\t -~]+")
MAX_TRACEPARENT = 255  # characters; 55 in version 00
MAX_TRACESTATE = 512  # characters, as W3C asks every system to propagate


def trace_context(traceparent: object, tracestate: object) -> tuple[str | None, str | None]:
    """Return the headers to propagate. An invalid one is dropped; tracestate needs a valid traceparent."""
    if not isinstance(traceparent, str) or len(traceparent) > MAX_TRACEPARENT:
        return None, None
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or (match[1] is not None and traceparent.startswith("00")):
        return None, None
    if isinstance(tracestate, str) and len(tracestate) <= MAX_TRACESTATE and _TRACESTATE.fullmatch(tracestate):
        return traceparent, tracestate
    return traceparent, None
