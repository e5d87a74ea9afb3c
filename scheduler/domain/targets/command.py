"""The target that runs a command."""

from typing import Annotated, ClassVar

from pydantic import FailFast, Field

from scheduler.domain.targets.base import Text, WorkTarget, checked
from scheduler.domain.targets.placeholders import check_placeholders

Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,100}$")]


class CommandTarget(WorkTarget):
    """Run a command that a worker offers."""

    kind: ClassVar[str] = "command"
    key: ClassVar[str] = "command."
    queue: ClassVar[str] = "scheduler_command_"
    by_name: ClassVar[bool] = True
    offers_in: ClassVar[str | None] = "SCHEDULER_COMMANDS_FILE"
    acknowledged_at_start: ClassVar[bool] = True

    name: Name
    arguments: Annotated[tuple[Text, ...], FailFast(), checked(check_placeholders)] = Field(
        default=(), max_length=1000
    )

    def routing_key(self) -> str:
        """Return the key of the queue that workers with this command consume."""
        return f"{self.key}{self.name}"
