"""Receive the bodies of imports, and find their lines without holding up other requests."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from scheduler.api.problems import RequestTimeout, ServiceUnavailable, TooManyRequests

MAX_IMPORTS = 2  # of one tenant at once
MAX_ALL_IMPORTS = 8  # of the process at once: each may hold a body of 32 MB
GRACE_SECONDS = 5.0  # for a body, if other imports wait
_RETRY_SECONDS = 5
# A line that is not blank, without the blanks before it.
_LINE = re.compile(rb"\s*+([^\n]+)").match

LinePosition = tuple[int, int, int]  # its number, from 1, its start and its end


@dataclass(eq=False, slots=True)
class ImportSlot:
    """An import in progress."""

    tenant: str | None
    began: float = field(default_factory=time.monotonic)
    receiving: asyncio.Timeout | None = None


class ImportSlots:
    """The imports in progress. If all slots are in use, a body that arrives slowly makes room for another."""

    def __init__(self) -> None:
        self._slots: list[ImportSlot] = []  # longest in progress first
        self._tenants: Counter[str | None] = Counter()

    @contextmanager
    def enter(self, tenant: str | None) -> Iterator[ImportSlot]:
        """Start an import. Raises TooManyRequests or ServiceUnavailable."""
        if tenant is not None and self._tenants[tenant] >= MAX_IMPORTS:
            raise TooManyRequests(f"{MAX_IMPORTS} imports of this tenant are running.", _RETRY_SECONDS)
        if len(self._slots) >= MAX_ALL_IMPORTS and not self._make_room():
            raise ServiceUnavailable(f"{MAX_ALL_IMPORTS} imports are running; retry later.", _RETRY_SECONDS)
        slot = ImportSlot(tenant)
        self._slots.append(slot)
        self._tenants[tenant] += 1
        try:
            yield slot
        finally:
            self._remove(slot)

    def _make_room(self) -> bool:
        now = time.monotonic()
        for slot in self._slots:
            if slot.receiving is not None and now - slot.began > GRACE_SECONDS:
                slot.receiving.reschedule(asyncio.get_running_loop().time())
                self._remove(slot)
                return True
        return False

    def _remove(self, slot: ImportSlot) -> None:
        if slot in self._slots:
            self._slots.remove(slot)
            self._tenants[slot.tenant] -= 1
            if not self._tenants[slot.tenant]:
                del self._tenants[slot.tenant]


async def receive_body(slot: ImportSlot, parts: AsyncIterator[bytes]) -> bytearray:
    """Return the whole body. Raises RequestTimeout if it has to make room for another import."""
    body = bytearray()
    try:
        async with asyncio.timeout(None) as slot.receiving:
            async for part in parts:
                body += part
    except TimeoutError:
        raise RequestTimeout("The body arrived too slowly while other imports were waiting.") from None
    finally:
        slot.receiving = None
    return body


def has_more_lines(body: bytearray, most: int) -> bool:
    """Return whether a body has more lines than that, blank lines included."""
    ends = body.count(b"\n")
    return ends > most or (ends == most and not body.endswith(b"\n"))


def find_lines(body: bytearray) -> list[LinePosition]:
    """Return the lines that are not blank."""
    lines: list[LinePosition] = []
    number, counted = 1, 0
    end = 0
    # A search would try each of the trailing blanks as the beginning of a line, which takes quadratic time.
    while match := _LINE(body, end):
        start, end = match.span(1)
        number += body.count(b"\n", counted, start)
        counted = start
        lines.append((number, start, end))
    return lines
