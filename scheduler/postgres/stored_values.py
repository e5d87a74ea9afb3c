"""Parse and write values that both jobs and runs store."""

from functools import lru_cache

from scheduler.domain.messages import Priority, RunPolicy

PRIORITIES = {priority.value: priority for priority in Priority}


@lru_cache(maxsize=1024)  # many jobs share a few policies
def read_policy(text: str) -> RunPolicy:
    return RunPolicy.model_validate_json(text)


@lru_cache(maxsize=1024)
def write_policy(policy: RunPolicy) -> str:
    return policy.model_dump_json(exclude_none=True)  # release 0.2 rejects fields that it does not have
