"""Limit what each token may use: requests, processor time, response bytes and requests in progress.

A request costs one unit, or more if it uses much processor time or sends many bytes. Costs are charged when they
are known, so a token may go into debt; its next requests get 429 until the debt is repaid.
"""

import math
import time
import types
from asyncio import CancelledError, Future, get_running_loop
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any

from scheduler.api.identity import Identity
from scheduler.api.problems import TooManyRequests

UNIT_SECONDS = 0.01  # of processor time; a list of 200 small jobs takes half of this
UNIT_BYTES = 262_144  # of a response; 200 small jobs have 150 kB
MAX_DEBT_SECONDS = 10  # after which a token has repaid any debt
MAX_IN_PROGRESS = 10  # requests per token; more of them would not be served faster
MAX_WAITING = 100  # requests per token that wait until one in progress ends
_MAX_TOKENS = 10_000


class TokenAccount:
    """The units that a token has left, and its requests in progress. Used only on the event loop's thread."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._balance = 2.0 * rate
        self._updated_at = clock()
        self._in_progress = 0
        self._waiting: deque[Future[None]] = deque()

    def take_request(self) -> None:
        """Charge for one request. Raises TooManyRequests if the token has less than one unit left."""
        self._refill()
        if self._balance < 1:
            self._reject()
        self._balance -= 1

    def charge(self, units: float) -> None:
        """Charge for the use of a request."""
        self._refill()
        self._balance = max(self._balance - units, -MAX_DEBT_SECONDS * self._rate)

    async def enter(self) -> None:
        """Start a request once there is a slot. Raises TooManyRequests if too many wait, or if there is a debt."""
        if self._in_progress < MAX_IN_PROGRESS:
            self._in_progress += 1
            return
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyRequests(f"This token has {MAX_IN_PROGRESS + MAX_WAITING} requests in progress.", 1)
        slot = get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except CancelledError:
            if slot.cancelled():
                self._waiting.remove(slot)
            else:
                self.leave()
            raise
        self._refill()
        if self._balance < 0:
            self.leave()
            self._reject()

    def leave(self) -> None:
        """End a request; the next one that waits takes its slot."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._in_progress -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._balance = min(2.0 * self._rate, self._balance + (now - self._updated_at) * self._rate)
        self._updated_at = now

    def _reject(self) -> None:
        raise TooManyRequests(
            f"This token may use {self._rate} units per second (SCHEDULER_API_RATE). A request costs one unit, or "
            f"one for each {UNIT_SECONDS * 1000:.0f} ms of processor time or {UNIT_BYTES // 1024} KiB sent.",
            max(1, math.ceil((1 - self._balance) / self._rate)),
        )


class RequestUsage:
    """The processor time and bytes of one request, charged to the account of its token."""

    def __init__(self) -> None:
        self.tenant = ""  # for FairThreads; empty until the token is known
        self.person = ""  # for ReadReplica; the subject of the token
        self.loop_seconds = 0.0  # on the event loop's thread
        self._account: TokenAccount | None = None
        self._entered = False
        self._seconds = 0.0
        self._bytes = 0
        self._charged = 1.0  # units; the first was taken with the request

    async def enter(self, account: TokenAccount, tenant: str) -> None:
        """Start the request, once, and charge this account from now on."""
        if self._account is None:
            self._account, self.tenant = account, tenant
            await account.enter()
            self._entered = True

    def spend(self, *, seconds: float = 0.0, sent: int = 0) -> None:
        """Charge for processor time and for bytes of the response."""
        self._seconds += seconds + self.loop_seconds
        self.loop_seconds = 0.0
        self._bytes += sent
        cost = max(self._seconds / UNIT_SECONDS, self._bytes / UNIT_BYTES)
        if self._account is not None and cost > self._charged:
            self._account.charge(cost - self._charged)
            self._charged = cost

    def exempt(self) -> None:
        """Charge nothing more: the number of such requests has a separate limit."""
        self._charged = math.inf

    def leave(self) -> None:
        """End the request, or its part that counts as in progress."""
        if self._account is not None and self._entered:
            self._entered = False
            self._account.leave()

    @types.coroutine
    def measure(self, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        """Run a coroutine and count the processor time of its steps."""
        resume: Callable[[Any], Any] = work.send
        value: Any = None
        while True:
            began = time.thread_time()
            try:
                awaited = resume(value)
            except StopIteration:
                return
            finally:
                self.loop_seconds += time.thread_time() - began
            try:
                value = yield awaited
                resume = work.send
            except BaseException as error:  # noqa: BLE001 - raised inside the coroutine
                value, resume = error, work.throw


usage_of_request: ContextVar[RequestUsage | None] = ContextVar("usage_of_request", default=None)


class RateLimit:
    """The accounts of all tokens; the least recently used are dropped."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._accounts: OrderedDict[str, TokenAccount] = OrderedDict()

    async def admit(self, who: Identity) -> None:
        """Start a request of this token, perhaps after waiting for its other requests. Raises TooManyRequests."""
        account = self._accounts.pop(who.token, None) or TokenAccount(self._rate, self._clock)
        self._accounts[who.token] = account
        if len(self._accounts) > _MAX_TOKENS:
            self._accounts.popitem(last=False)
        account.take_request()
        usage = usage_of_request.get()
        if usage is not None:
            usage.person = who.sub
            await usage.enter(account, f"token {who.token}" if who.tenant is None else who.tenant)
