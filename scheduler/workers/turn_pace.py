"""Estimate when the next slot of an endpoint, a tenant or a command is free."""

import random
from collections import OrderedDict
from dataclasses import dataclass, field

from scheduler.domain.targets.pools import NORMAL_RANK

FIRST_GUESS_SECONDS = 0.1  # duration of a call before any has ended
CAREFUL_GUESS_SECONDS = 0.5  # the same for snoozed calls: if the endpoint hangs, all of them return
MIN_SECONDS = 1.0
MAX_SECONDS = 900.0
# Snoozed calls return at least this often, to detect that the endpoint has recovered.
MAX_STEP_SECONDS = 0.25
_WEIGHT = 0.2  # of the newest call in the moving average


@dataclass(slots=True)
class TurnPace:
    """The rate at which calls end, from past calls and those in flight."""

    begun: OrderedDict[int, float] = field(default_factory=OrderedDict)  # start times of the calls in flight
    mean: float | None = None  # duration of a call in seconds
    booked: dict[int, float] = field(default_factory=dict)  # by rank: snoozed calls have the slots up to this time

    def seconds(self, now: float, limit: int, guess: float = FIRST_GUESS_SECONDS) -> float:
        """Return the seconds between two free slots if `limit` calls run concurrently."""
        oldest = next(iter(self.begun.values()), None)
        age = 0.0 if oldest is None else now - oldest
        return max(guess if self.mean is None else self.mean, age) / limit

    def book(self, now: float, limit: int, rank: int = NORMAL_RANK) -> float:
        """Book the next slot that no call of the same or a higher class has; return the seconds until then."""
        step = min(self.seconds(now, limit, CAREFUL_GUESS_SECONDS), MAX_STEP_SECONDS)
        before = max((until for own, until in self.booked.items() if own <= rank), default=0.0)
        booked = min(max(before, now + MIN_SECONDS) + step, now + MAX_SECONDS)
        self.booked[rank] = booked
        # Jitter, because all calls beyond MAX_SECONDS would return at the same time.
        return (booked - now) * random.uniform(0.9, 1.0)  # noqa: S311 - jitter, not a secret

    def end(self, ticket: int, now: float) -> None:
        """Record the end of a call."""
        duration = now - self.begun.pop(ticket)
        self.mean = duration if self.mean is None else (1 - _WEIGHT) * self.mean + _WEIGHT * duration
