"""Compute the wait before the next attempt."""

from hashlib import sha1

from scheduler.domain.messages import RunPolicy

_JITTER = 0.1


def backoff(policy: RunPolicy, failures: int, event_id: str, attempt: int) -> float:
    """Return the seconds to wait after `failures` failed attempts.

    Jitter adds up to a tenth, so that runs that failed together are not retried together. It is a function of the
    event and the attempt, so that every computation gives the same result.
    """
    if not isinstance(policy.backoff, str):
        return policy.backoff[min(failures, len(policy.backoff)) - 1]
    wait: float = policy.delay
    match policy.backoff:
        case "exponential":
            wait = policy.delay * 2.0 ** min(failures - 1, 64)
        case "linear":
            wait = policy.delay * failures
    return min(wait * (1 + _JITTER * pseudo_random(event_id, attempt)), policy.max_delay)


def pseudo_random(event_id: str, attempt: int) -> float:
    """Return a deterministic pseudo-random number from 0 to 1."""
    digest = sha1(f"{event_id}/{attempt}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4]) / 2**32
