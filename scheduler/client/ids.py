"""Job ids: deterministic from the host's keys, or new."""

from uuid import UUID, uuid5

from scheduler.domain.time_ordered_id import time_ordered_id

_JOBS = UUID("3b0b3f0f-7d53-5c0e-8d4e-5a2f0c8f9b6e")

Key = str | int | UUID


def job_id(*key: Key) -> UUID:
    """Return the id of the job that this key names, like `job_id("invoice", 42)`.

    The type of a part counts: `job_id("invoice", "42")` is another job.
    """
    if not key:
        raise ValueError("a job needs a key, like job_id('invoice', 42)")
    return uuid5(_JOBS, "".join(_encoded(part) for part in key))


def new_job_id() -> UUID:
    """Return the id of a job that no key names; ids are in the order of their creation (UUID version 7)."""
    return time_ordered_id()


def _encoded(part: Key) -> str:
    """Encode a part with its type and length, so that different keys have different encodings."""
    match part:
        case bool():
            raise TypeError("a key is made of strings, whole numbers and UUIDs, not of booleans")
        case str():
            kind, text = "s", part
        case int():
            kind, text = "i", str(int(part))
        case UUID():
            kind, text = "u", str(part)
        case _:
            raise TypeError(f"a key is made of strings, whole numbers and UUIDs, not of {type(part).__name__}")
    return f"{kind}{len(text)}:{text}"
