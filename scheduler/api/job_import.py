"""Import jobs from NDJSON, with a result line for each."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from scheduler.api.database import Database
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.import_bodies import ImportSlots, LinePosition, find_lines, has_more_lines, receive_body
from scheduler.api.problems import Unprocessable
from scheduler.api.rate_limit import usage_of_request
from scheduler.commands.import_jobs import BATCH_BYTES, BATCH_LINES, LOCKED_LINE, split_import, store_import
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.caller import Caller, Via
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Incoming, can_precompute_schedule, precompute_schedule
from scheduler.domain.message_parser import parse_command
from scheduler.settings import Settings

MAX_LINES = 10_000
PART_SECONDS = 0.01  # of processor time, after which other requests get their turn for as long
LOCKED_SECONDS = 15.0  # that an import may spend on lines whose jobs are locked
LOCKED_PAUSE_SECONDS = 0.2
_TOO_MANY = Problem("body", f"has more than {MAX_LINES:,} lines: split it")

Parsed = tuple[int, Incoming | bytes]  # the number of a line, and its request or the response line of its errors
Stored = str | Sequence[Problem]  # the status of a request, or its problems


@dataclass(slots=True)
class _Patience:
    """The seconds that an import may still spend on locked lines."""

    seconds: float = LOCKED_SECONDS


class JobImport:
    """The service behind POST /jobs/import."""

    def __init__(self, database: Database, compute: FairThreads, settings: Settings) -> None:
        self._database = database
        self._compute = compute
        self._max_payload = settings.max_payload_bytes
        self._tenancy = Tenancy.of("field", (), settings.tenant_routes)
        self._wakeup_horizon = timedelta(milliseconds=settings.poll_interval_ms + 100)
        self._slots = ImportSlots()

    async def run(self, who: Identity, stream: Callable[[], AsyncIterator[bytes]]) -> bytes:
        """Store each line like a request from AMQP; return one line for each, in order."""
        check(who, Permission.WRITE)
        with self._slots.enter(who.tenant) as slot:
            if (usage := usage_of_request.get()) is not None:
                usage.exempt()
            return await self._import(who, await receive_body(slot, stream()))

    async def _import(self, who: Identity, body: bytearray) -> bytes:
        if has_more_lines(body, MAX_LINES):
            raise Unprocessable([_TOO_MANY])
        lines = await self._compute.run(partial(find_lines, body))
        results: list[bytes] = []
        rest, patience = iter(lines), _Patience()
        while batch := await self._parse_batch(who, body, rest):
            results += await self._store(batch, patience)
        return b"".join(results)

    async def _parse_batch(self, who: Identity, body: bytearray, lines: Iterator[LinePosition]) -> list[Parsed]:
        """Parse lines until they are enough to be stored."""
        batch: list[Parsed] = []
        size = 0
        while len(batch) < BATCH_LINES and size < BATCH_BYTES:
            part, part_size, seconds = await self._compute.run(partial(self._parse_part, who, body, lines))
            if not part:
                break
            batch += part
            size += part_size
            await asyncio.sleep(seconds)
        return batch

    def _parse_part(
        self, who: Identity, body: bytearray, lines: Iterator[LinePosition]
    ) -> tuple[list[Parsed], int, float]:
        """Parse lines for PART_SECONDS; return them, their size and the processor time."""
        part: list[Parsed] = []
        began, size, seconds = time.thread_time(), 0, 0.0
        for number, start, end in lines:
            parsed = self._request(who, bytes(body[start:end]))
            part.append((number, _error_line(number, parsed) if isinstance(parsed, Rejected) else parsed))
            size += end - start
            seconds = time.thread_time() - began
            if seconds > PART_SECONDS:
                break
        return part, size, seconds

    async def _store(self, batch: Sequence[Parsed], patience: _Patience) -> list[bytes]:
        """Store the requests of a batch; return the response lines in order."""
        results = {number: parsed for number, parsed in batch if isinstance(parsed, bytes)}
        numbers = iter([number for number, parsed in batch if not isinstance(parsed, bytes)])
        for requests in split_import(parsed for _, parsed in batch if not isinstance(parsed, bytes)):
            stored = await self._store_requests(requests, patience)
            for incoming, outcome in zip(requests, stored, strict=True):
                number = next(numbers)
                results[number] = (_line(number, id=incoming.about, status=outcome) if isinstance(outcome, str)
                                   else _line(number, errors=_errors(outcome)))
        return [results[number] for number, _ in batch]

    async def _store_requests(self, requests: Sequence[Incoming], patience: _Patience) -> list[Stored]:
        """Store the requests; retry those whose jobs are locked, without waiting on a connection."""
        stored = await self._write(requests)
        while patience.seconds > 0 and any(outcome is LOCKED_LINE for outcome in stored):
            began = time.monotonic()
            await asyncio.sleep(LOCKED_PAUSE_SECONDS)
            locked = [index for index, outcome in enumerate(stored) if outcome is LOCKED_LINE]
            retried = await self._write([requests[index] for index in locked], wait_for_locks=False)
            for index, outcome in zip(locked, retried, strict=True):
                stored[index] = outcome
            patience.seconds -= time.monotonic() - began
        return stored

    async def _write(self, requests: Sequence[Incoming], *, wait_for_locks: bool = True) -> list[Stored]:
        return await self._database.write(partial(
            store_import, batch=requests, wake_horizon=self._wakeup_horizon, wait_for_locks=wait_for_locks,
        ))

    def _request(self, who: Identity, text: bytes) -> Incoming | Rejected:
        tenant = {} if who.tenant is None else {"tenant": who.tenant}
        try:
            incoming = parse_command("request", text, max_payload_bytes=self._max_payload, fixed_fields=tenant)
            self._tenancy.check_route(incoming)
        except Rejected as rejected:
            return rejected.without_traceback()
        incoming.caller = Caller(who.sub, Via.API, who.address)
        if can_precompute_schedule(incoming):
            precompute_schedule(incoming)
        return incoming


def _error_line(number: int, rejected: Rejected) -> bytes:
    return _line(number, errors=_errors(rejected.problems))


def _line(number: int, **members: Any) -> bytes:
    return json.dumps({"line": number, **members}).encode() + b"\n"


def _errors(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"field": problem.field, "problem": problem.problem} for problem in problems]
