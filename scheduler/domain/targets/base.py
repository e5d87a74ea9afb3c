"""The base of all kinds of targets: the address of their events, and their credentials."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from scheduler.domain.message_base import ContractMessage

_Checked = TypeVar("_Checked")


def checked(*checks: Callable[[Any], None]) -> AfterValidator:
    """Return a validator of functions that raise ValueError."""

    def validate(value: _Checked) -> _Checked:
        for check_value in checks:
            check_value(value)
        return value

    return AfterValidator(validate)


def _require_strings(value: Any) -> Any:
    """Stop at the first value that is not a string; pydantic would list them all."""
    if isinstance(value, dict) and not all(isinstance(text, str) for text in value.values()):
        raise ValueError("must be a string")
    return value


Text = Annotated[str, Field(strict=True)]
StringMap = Annotated[dict[str, Text], BeforeValidator(_require_strings)]


class WorkTarget(ContractMessage):
    """Work of one kind. The workers of a pool share one queue of it, or a queue for each name that they offer."""

    kind: ClassVar[str]  # its field in a Target
    key: ClassVar[str]  # routing key in schedule.work; a prefix of it if workers offer the kind by name
    queue: ClassVar[str]  # name of the queue, or its prefix
    by_name: ClassVar[bool] = False
    offer: ClassVar[str | None] = None  # what its workers announce; None: the routing key, if it is by name
    offers_in: ClassVar[str | None] = None  # the setting that lists a worker's offers; None: all offer it
    acknowledged_at_start: ClassVar[bool] = False  # a second delivery does not mean a lost worker

    def routing_key(self) -> str:
        """Return the routing key of its events in the unnamed pool."""
        return self.key

    @classmethod
    def masked(cls, target: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON of a target with its literal credentials masked."""
        return target

    def has_masks(self) -> bool:
        """Return whether a credential is masked."""
        return False

    def with_credentials(self, stored: Self | None) -> Self:  # noqa: ARG002 - for kinds with credentials
        """Return the target with masks replaced by stored credentials. Raises Rejected."""
        return self
