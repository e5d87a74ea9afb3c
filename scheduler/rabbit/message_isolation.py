"""Isolate messages over which the broker closes a channel, so that one message cannot stop all the others.

RabbitMQ closes the channel and does not say which message was at fault. If one was too large, the reason names the
limit: larger messages are not resent. After any other closure that a message may have caused, messages are sent
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
_SUSPENDED_SECONDS, _MAX_SUSPENDED_SECONDS = 60.0, 3600.0
_MAX_SUSPENDED = 1000


class MessageIsolation:
    """A process's record of messages that the broker does not accept, across all its connections."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.max_body = NO_LIMIT  # bytes
        self.one_at_a_time = 0  # messages that must still be sent one at a time
        self.closed_by_message: str | None = None  # the last reason that a message may have caused
        # By fingerprint: the end of the suspension, its length in seconds, and the reason.
        self._suspended: dict[int, tuple[float, float, str]] = {}

    def closed(self, problem: str, unconfirmed: Sequence[Publishable]) -> None:
        """Learn from the loss of a channel or a connection while these messages were unconfirmed."""
        code = _BY_BROKER.search(problem)
        if code is not None and code[1] in _CODES:
            self.closed_by_message = problem
        if match := _MAX_SIZE.search(problem):
            self.max_body = int(match[1])
        elif code is None or code[1] not in _CODES:
            self.max_body = NO_LIMIT  # it may have been raised: that takes a restart of the broker
        elif len(unconfirmed) == 1:
            self._suspend(unconfirmed[0], problem)
        else:
            self.one_at_a_time = max(self.one_at_a_time, len(unconfirmed))

    def _suspend(self, message: Publishable, problem: str) -> None:
        fingerprint = _fingerprint(message)
        _, before, _ = self._suspended.get(fingerprint, (0.0, _SUSPENDED_SECONDS / 2, ""))
        seconds = min(before * 2, _MAX_SUSPENDED_SECONDS)
        if len(self._suspended) >= _MAX_SUSPENDED:
            self._suspended.pop(min(self._suspended, key=lambda other: self._suspended[other][0]), None)
        self._suspended[fingerprint] = (self._clock() + seconds, seconds, problem)

    @property
    def any_suspended(self) -> bool:
        """Whether any message is suspended."""
        return bool(self._suspended)

    def problem(self, message: Publishable) -> str | None:
        """Return the reason not to send a message now, None if there is none."""
        until, _, problem = self._suspended.get(_fingerprint(message), (0.0, 0.0, ""))
        return f"the broker closed the channel over it: {problem}" if until > self._clock() else None


def _fingerprint(message: Publishable) -> int:
    return hash((message.exchange, message.routing_key, message.key or message.body))


isolation = MessageIsolation()
