"""Deterministic job ids from the host's keys."""

from uuid import UUID, uuid5

_JOBS = UUID("3b0b3f0f-7d53-5c0e-8d4e-5a2f0c8f9b6e")

Key = str | int | UUID


def job_id(*key: Key) -> UUID:
    """Return the id of the job that this key names, like `job_id("invoice", 42)`."""
    if not key:
        raise ValueError("a job needs a key, like job_id('invoice', 42)")
    return uuid5(_JOBS, "".join(_encoded(part) for part in key))


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
