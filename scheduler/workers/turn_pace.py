"""How quickly turns come, and when the next one that is free will."""

import random
from collections import OrderedDict
from dataclasses import dataclass, field

FIRST_GUESS_SECONDS = 0.1  # of a call to an endpoint that nothing is known of
CAREFUL_GUESS_SECONDS = 0.5  # the same for what is put off: should it hang, all of that comes again
LEAST_SECONDS = 1.0
MOST_SECONDS = 900.0
# Calls that are put off come back at least this often, to see whether the endpoint has recovered.
MOST_STEP_SECONDS = 0.25
_WEIGHT = 0.2  # of the newest call in a mean


@dataclass(slots=True)
class TurnPace:
    """How quickly turns come, by the calls so far and those in flight."""

    begun: OrderedDict[int, float] = field(default_factory=OrderedDict)  # when each call in flight began
    mean: float | None = None  # seconds that a call takes
    booked_until: float = 0.0  # turns up to then are given to calls that were put off

    def seconds(self, now: float, limit: int, guess: float = FIRST_GUESS_SECONDS) -> float:
        """Return the seconds from one turn to the next with so many calls at once."""
        oldest = next(iter(self.begun.values()), None)
        age = 0.0 if oldest is None else now - oldest
        return max(guess if self.mean is None else self.mean, age) / limit

    def put_off(self, now: float, limit: int) -> float:
        """Book the next turn that is free and return the seconds until then."""
        step = min(self.seconds(now, limit, CAREFUL_GUESS_SECONDS), MOST_STEP_SECONDS)
        booked = max(self.booked_until, now + LEAST_SECONDS) + step
        self.booked_until = min(booked, now + MOST_SECONDS)
        # All that come beyond the last turn that is worked out would come back in the same moment.
        return (self.booked_until - now) * random.uniform(0.9, 1.0)  # noqa: S311 - jitter, not a secret

    def end(self, ticket: int, now: float) -> None:
        """Note that a call has ended."""
        took = now - self.begun.pop(ticket)
        self.mean = took if self.mean is None else (1 - _WEIGHT) * self.mean + _WEIGHT * took
