"""What a worker is to do when a job with a target falls due."""

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from scheduler.domain.messages.base import ContractMessage
from scheduler.domain.names import COMMAND_KEY_PREFIX, WEBHOOK_KEY

_Text = Annotated[str, Field(strict=True)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,100}$")]


class WebhookTarget(ContractMessage):
    """Call a URL."""

    url: Annotated[str, Field(strict=True, min_length=1, max_length=2000)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, _Text] = Field(default_factory=dict)
    query: dict[str, _Text] = Field(default_factory=dict)
    body: Any = Field(default=None, description="A JSON value, or a string that is sent as it is. "
                                                "Left out: the ScheduleDue without its target.")
    timeout: Annotated[float, Field(ge=1, le=900, allow_inf_nan=False, strict=True)] = Field(
        default=30, description="Seconds for the whole exchange."
    )
    secret: Annotated[str, Field(strict=True, min_length=1, max_length=100)] | None = Field(
        default=None, description="The name of the secret that the request is signed with."
    )


class CommandTarget(ContractMessage):
    """Run a command that some worker offers."""

    name: Name
    arguments: tuple[_Text, ...] = Field(default=(), max_length=1000)


class Target(ContractMessage):
    """Exactly one of them."""

    webhook: WebhookTarget | None = None
    command: CommandTarget | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            raise ValueError("webhook: exactly one of webhook and command must be given")
        return self


@lru_cache(maxsize=1024)
def work_key(target: str) -> str:
    """Return the routing key by which a worker gets the work that a target, as JSON text, asks for."""
    command = Target.model_validate_json(target).command
    return WEBHOOK_KEY if command is None else f"{COMMAND_KEY_PREFIX}{command.name}"
