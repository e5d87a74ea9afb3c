"""Isolates messages over which the broker closes a channel, so that one message cannot stop all the others.

RabbitMQ closes the channel and does not say which message was at fault. If one was too large, the reason names the
limit: larger messages are not sent again. After any other closure that a message may have caused, messages go out
one at a time until the channel closes over a single one.
"""

import re
import time
from collections.abc import Callable, Sequence

from scheduler.rabbit.frames import NO_LIMIT, Publishable

_MAX_SIZE = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")
_BY_BROKER = re.compile(r"ClosedByBroker: \((\d+), ")
# The codes that a single message can cause. Not 404, a missing exchange, which the next connection declares again,
# nor 320, a shutdown.
_CODES = frozenset(("311", "403", "406", "501", "502", "503", "505", "540", "541"))
_SHUNNED_SECONDS, _MAX_SHUNNED_SECONDS = 60.0, 3600.0
_MAX_SHUNNED = 1000


class MessageIsolation:
    """What this process has learned about messages that the broker does not accept, over all its connections."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.max_body = NO_LIMIT  # bytes
        self.one_at_a_time = 0  # how many messages are still to be sent so
        self.closed_by_message: str | None = None  # the last reason that a message may have caused
        # By fingerprint: until when a message is not sent, how long that is in all, and why.
        self._shunned: dict[int, tuple[float, float, str]] = {}

    def closed(self, why: str, unconfirmed: Sequence[Publishable]) -> None:
        """Learn from the loss of a channel or a connection while these messages were unconfirmed."""
        code = _BY_BROKER.search(why)
        if code is not None and code[1] in _CODES:
            self.closed_by_message = why
        if found := _MAX_SIZE.search(why):
            self.max_body = int(found[1])
        elif code is None or code[1] not in _CODES:
            self.max_body = NO_LIMIT  # it may have been raised: that takes a restart of the broker
        elif len(unconfirmed) == 1:
            self._shun(unconfirmed[0], why)
        else:
            self.one_at_a_time = max(self.one_at_a_time, len(unconfirmed))

    def _shun(self, message: Publishable, why: str) -> None:
        fingerprint = _fingerprint(message)
        _, before, _ = self._shunned.get(fingerprint, (0.0, _SHUNNED_SECONDS / 2, ""))
        seconds = min(before * 2, _MAX_SHUNNED_SECONDS)
        if len(self._shunned) >= _MAX_SHUNNED:
            self._shunned.pop(min(self._shunned, key=lambda each: self._shunned[each][0]), None)
        self._shunned[fingerprint] = (self._clock() + seconds, seconds, why)

    @property
    def shuns_any(self) -> bool:
        """Whether there are messages to check for."""
        return bool(self._shunned)

    def problem(self, message: Publishable) -> str | None:
        """Return why a message is not to be sent now, None if it may be."""
        until, _, why = self._shunned.get(_fingerprint(message), (0.0, 0.0, ""))
        return f"the broker closed the channel over it: {why}" if until > self._clock() else None


def _fingerprint(message: Publishable) -> int:
    return hash((message.exchange, message.routing_key, message.key or message.body))


isolation = MessageIsolation()
