"""How long to wait before the next attempt."""

from hashlib import sha1

from scheduler.domain.messages import RunPolicy

_CHANCE = 0.1


def backoff(policy: RunPolicy, failures: int, event_id: str, attempt: int) -> float:
    """Return the seconds before the next attempt after so many that failed.

    Chance adds up to a tenth, so that what failed together is not tried again together. It is the same whoever
    reckons it, and however often: a function of the event and the attempt.
    """
    if not isinstance(policy.backoff, str):
        return policy.backoff[min(failures, len(policy.backoff)) - 1]
    wait: float = policy.delay
    match policy.backoff:
        case "exponential":
            wait = policy.delay * 2.0 ** min(failures - 1, 64)
        case "linear":
            wait = policy.delay * failures
    return min(wait * (1 + _CHANCE * chance(event_id, attempt)), policy.max_delay)


def chance(event_id: str, attempt: int) -> float:
    """Return a number from 0 to 1 that looks random and is not."""
    digest = sha1(f"{event_id}/{attempt}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4]) / 2**32
