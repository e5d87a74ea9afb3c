"""Values that jobs and runs store alike."""

from functools import lru_cache

from scheduler.domain.messages import Priority, RunPolicy

PRIORITIES = {each.value: each for each in Priority}


@lru_cache(maxsize=1024)
def read_policy(text: str) -> RunPolicy:
    """Read the policy of a tracked job; jobs have few."""
    return RunPolicy.model_validate_json(text)


@lru_cache(maxsize=1024)
def write_policy(policy: RunPolicy) -> str:
    """Write the policy of a tracked job."""
    return policy.model_dump_json()
