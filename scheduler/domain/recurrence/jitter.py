"""Compute jitter: a deterministic delay that spreads occurrences."""

from datetime import datetime, timedelta
from hashlib import blake2b
from uuid import UUID

from scheduler.domain.instants import rfc3339

_MICRO = timedelta(microseconds=1)


def jitter_delay(job_id: UUID, nominal_at: datetime, limit: timedelta) -> timedelta:
    """Return a delay from 0 up to `limit`, exclusive, spread evenly over jobs and occurrences."""
    digest = blake2b(rfc3339(nominal_at).encode(), digest_size=8, key=job_id.bytes).digest()
    return timedelta(microseconds=int.from_bytes(digest, "big") * (limit // _MICRO) >> 64)
