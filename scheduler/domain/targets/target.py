"""The target of a job. The fields of Target are the registry of target kinds."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self, get_args

from pydantic import Field, model_validator

from scheduler.domain.message_base import ContractMessage
from scheduler.domain.targets.base import WorkTarget
from scheduler.domain.targets.command import CommandTarget
from scheduler.domain.targets.credential_masks import MASK
from scheduler.domain.targets.pools import CLASS_RANKS, Pool, in_class, in_pool, split_pool
from scheduler.domain.targets.webhook import WebhookTarget


class Target(ContractMessage):
    """The work for a worker: exactly one kind of work, and the pool that does it."""

    webhook: WebhookTarget | None = None
    command: CommandTarget | None = None
    pool: Pool | None = Field(
        default=None, description="Only workers of this pool do the work. Default: `default`, the unnamed pool."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(getattr(self, kind) is not None for kind in TARGETS) != 1:
            raise ValueError(f"must have exactly one of {' and '.join(TARGETS)}")
        return self

    @property
    def kind(self) -> str:
        """The field that is set."""
        return next(kind for kind in TARGETS if getattr(self, kind) is not None)

    @property
    def work(self) -> WorkTarget:
        """The value of that field."""
        work: WorkTarget = getattr(self, self.kind)
        return work

    def routing_key(self) -> str:
        """Return the routing key of its events: the key of the work, in its pool."""
        return in_pool(self.work.routing_key(), self.pool)


TARGETS: dict[str, type[WorkTarget]] = {
    kind: get_args(field.annotation)[0] for kind, field in Target.model_fields.items() if kind != "pool"
}
SHARED_QUEUES = {model.queue: model.key for model in TARGETS.values() if not model.by_name}  # with their keys


@lru_cache(maxsize=1024)
def work_key(target: str) -> str:
    """Return the routing key of a target, given as JSON text."""
    return Target.model_validate_json(target).routing_key()


def target_of_key(key: str) -> type[WorkTarget] | None:
    """Return the kind of target whose events have this routing key."""
    return next((model for model in TARGETS.values()
                 if (key.startswith(model.key) if model.by_name else split_pool(key)[0] == model.key)), None)


def class_key(key: str, priority: str | None) -> str | None:
    """Return the routing key of a priority's separate queue; None if the priority has none."""
    if priority not in CLASS_RANKS or (target := target_of_key(key)) is None:
        return None
    prefix = target.key if target.by_name else ""
    bare, pool = split_pool(key.removeprefix(prefix))
    return in_class(prefix + bare, pool, priority)


def mask_target(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target, as JSON, with its literal credentials masked."""
    return {
        kind: TARGETS[kind].masked(value) if kind in TARGETS and isinstance(value, dict) else value
        for kind, value in target.items()
    }


def mask_target_text(target: str) -> str:
    """Return a target, as JSON text, with its literal credentials masked."""
    if not any(kind in target for kind in TARGETS):
        return target
    try:
        parsed = json.loads(target)
        masked = mask_target(parsed) if isinstance(parsed, dict) else parsed
        return target if masked == parsed else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return json.dumps(MASK)


def restore_credentials(target: Target, stored: str | None) -> Target:
    """Return a target with masks replaced by the credentials of the stored target, given as JSON text.

    Raises Rejected for a mask without a stored credential.
    """
    before = None if stored is None else getattr(Target.model_validate_json(stored), target.kind)
    return target.model_copy(update={target.kind: target.work.with_credentials(before)})
