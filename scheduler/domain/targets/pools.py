"""Pools of workers and classes of their work: the names of their queues and routing keys."""

from typing import Annotated

from pydantic import Field

POOL_PATTERN = r"[A-Za-z0-9_-]{1,100}"
DEFAULT_POOL = "default"  # the unnamed pool
# Priorities with separate queues in each pool, with their rank; all other work has rank 1.
CLASS_RANKS = {"high": 0, "low": 2}
NORMAL_RANK = 1
Pool = Annotated[str, Field(strict=True, pattern=rf"^{POOL_PATTERN}$")]


def in_pool(name: str, pool: str | None) -> str:
    """Return the name that a queue, a routing key or an offer has in a pool; the unnamed pool adds nothing.

    Kinds, commands and pools contain no dots, so two pools never have the same name.
    """
    return name if pool in (None, DEFAULT_POOL) else f"{name}.{pool}"


def in_class(bare: str, pool: str | None, priority: str) -> str:
    """Return the name that a queue or a routing key of a pool has for work of the priority `high` or `low`.

    It has three words, so no pool's name equals it.
    """
    return f"{bare}.{pool or DEFAULT_POOL}.{priority}"


def split_pool(name: str) -> tuple[str, str | None]:
    """Return the name without its pool, and the pool; None for the unnamed pool."""
    bare, _, pool = name.partition(".")
    return bare, pool or None
