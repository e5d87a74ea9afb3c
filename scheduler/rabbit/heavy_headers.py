"""Parse only the used values of messages with very many header values, which would take pika milliseconds.

pika takes more than a microsecond for each value, and a value may have a single byte. Without this a publisher
could occupy a consumer for 170 ms with one message of 130 kB.
"""

import pika

from scheduler.domain.handler_catalogue import HANDLERS_HEADER
from scheduler.domain.messages.workers import OFFER_TENANTS_HEADER
from scheduler.domain.runs.marker import MARKER_HEADER
from scheduler.domain.worker_facts import FACTS_HEADER
from scheduler.rabbit import content_header, header_values

MAX_HEADERS = 64
MAX_NESTED_BYTES = 512  # of tables and arrays
MAX_SEARCHED = 256  # headers
_NESTED = b"AF"
_USED = frozenset(name.encode() for name in (
    "traceparent", "tracestate", "x-delivery-count", MARKER_HEADER, OFFER_TENANTS_HEADER, HANDLERS_HEADER,
    FACTS_HEADER,
))


def read_heavy(raw: bytes) -> pika.BasicProperties | None:
    """Return the properties without unused headers if there are many values; None if there are few."""
    try:
        first = content_header.read(raw, MAX_HEADERS + 1).entries
        nested = sum(entry.end - entry.value for entry in first if entry.kind in _NESTED)
        if len(first) <= MAX_HEADERS and nested <= MAX_NESTED_BYTES:
            return None
        content = content_header.read(raw, MAX_SEARCHED)
    except content_header.UnreadableContent:
        return None
    content.entries = [entry for entry in content.entries if entry.name in _USED and entry.kind not in _NESTED]
    return pika.BasicProperties(headers=header_values.headers(content), **header_values.properties(content))
