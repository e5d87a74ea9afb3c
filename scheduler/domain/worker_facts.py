"""Facts that a worker reports about itself: platform, pools and capacity."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scheduler.domain.errors import Problem, Rejected

FACTS_HEADER = "x-worker-facts"  # a header: consumers of release 0.2 reject unknown fields in the body
MAX_POOLS = 1000
_MAX_BYTES = 128 * 1024
_MAX_TEXT = 200


class WorkerFacts(BaseModel):
    """The platform, the pools it serves, and the maximum number of concurrent attempts."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    platform: str | None = Field(default=None, max_length=_MAX_TEXT)
    pools: tuple[str, ...] = Field(default=(), max_length=MAX_POOLS)
    capacity: int | None = Field(default=None, ge=0, le=2**31 - 1)


def read_facts(header: object) -> WorkerFacts | None:
    """Return the facts of a heartbeat's header; None without a header. Raises Rejected."""
    if header is None:
        return None
    try:
        if not isinstance(header, str) or len(header) > _MAX_BYTES or "\\u0000" in header:
            raise ValueError
        return WorkerFacts.model_validate_json(header)
    except (ValueError, ValidationError):
        problem = f"must be a JSON object with platform, pools and capacity, at most {_MAX_BYTES:,} bytes"
        raise Rejected([Problem(FACTS_HEADER, problem)]) from None
