"""What a worker is to do when a job with a target falls due."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, model_validator

from scheduler.domain.messages.base import ContractMessage
from scheduler.domain.names import COMMAND_KEY_PREFIX, WEBHOOK_KEY
from scheduler.domain.targets.headers import check_headers
from scheduler.domain.targets.placeholders import check
from scheduler.domain.targets.urls import check_url

_Checked = TypeVar("_Checked")


def _checked(*checks: Callable[[Any], None]) -> AfterValidator:
    def validate(value: _Checked) -> _Checked:
        for each in checks:
            each(value)
        return value

    return AfterValidator(validate)


def _refuse_other_values(value: Any) -> Any:
    """Stop at the first value that is no text, where pydantic would list each of them."""
    if isinstance(value, dict) and not all(isinstance(each, str) for each in value.values()):
        raise ValueError("must be a string")
    return value


_Text = Annotated[str, Field(strict=True)]
_Texts = Annotated[dict[str, _Text], BeforeValidator(_refuse_other_values)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,100}$")]


class WebhookTarget(ContractMessage):
    """Call a URL."""

    url: Annotated[str, Field(strict=True, min_length=1, max_length=2000), _checked(check_url, check)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: Annotated[_Texts, _checked(check_headers)] = Field(
        default_factory=dict, description="{{secret.NAME}} in a value is filled in by the worker.",
    )
    query: Annotated[_Texts, _checked(check)] = Field(default_factory=dict)
    body: Annotated[Any, _checked(check)] = Field(
        default=None, description="A JSON value, or a string that is sent as it is. "
        "Left out: the ScheduleDue without its target.",
    )
    timeout: Annotated[float, Field(ge=1, le=900, allow_inf_nan=False, strict=True)] = Field(
        default=30, description="Seconds for the whole exchange."
    )
    secret: Annotated[str, Field(strict=True, min_length=1, max_length=100)] | None = Field(
        default=None, description="The name of the secret that the request is signed with."
    )


class CommandTarget(ContractMessage):
    """Run a command that some worker offers."""

    name: Name
    arguments: Annotated[tuple[_Text, ...], FailFast(), _checked(check)] = Field(default=(), max_length=1000)


class Target(ContractMessage):
    """Exactly one of them."""

    webhook: WebhookTarget | None = None
    command: CommandTarget | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            raise ValueError("must have exactly one of webhook and command")
        return self


@lru_cache(maxsize=1024)
def work_key(target: str) -> str:
    """Return the routing key by which a worker gets the work that a target, as JSON text, asks for."""
    command = Target.model_validate_json(target).command
    return WEBHOOK_KEY if command is None else f"{COMMAND_KEY_PREFIX}{command.name}"
