"""Targets: the webhook or command that a worker runs for a job."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, model_validator

from scheduler.domain.messages.base import ContractMessage
from scheduler.domain.names import COMMAND_KEY_PREFIX, WEBHOOK_KEY
from scheduler.domain.targets.headers import check_headers
from scheduler.domain.targets.placeholders import check_placeholders
from scheduler.domain.targets.urls import check_url

_Checked = TypeVar("_Checked")


def _checked(*checks: Callable[[Any], None]) -> AfterValidator:
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


_Text = Annotated[str, Field(strict=True)]
_StringMap = Annotated[dict[str, _Text], BeforeValidator(_require_strings)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,100}$")]


class WebhookTarget(ContractMessage):
    """Call a URL."""

    url: Annotated[str, Field(strict=True, min_length=1, max_length=2000), _checked(check_url, check_placeholders)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: Annotated[_StringMap, _checked(check_headers)] = Field(
        default_factory=dict, description="The worker substitutes {{secret.NAME}} in values.",
    )
    query: Annotated[_StringMap, _checked(check_placeholders)] = Field(default_factory=dict)
    body: Annotated[Any, _checked(check_placeholders)] = Field(
        default=None, description="A JSON value, or a string that is sent verbatim. "
        "Default: the ScheduleDue without its target.",
    )
    timeout: Annotated[float, Field(ge=1, le=900, allow_inf_nan=False, strict=True)] = Field(
        default=30, description="Seconds for the whole request."
    )
    secret: Annotated[str, Field(strict=True, min_length=1, max_length=100)] | None = Field(
        default=None, description="Name of the secret that signs the request."
    )


class CommandTarget(ContractMessage):
    """Run a command that a worker offers."""

    name: Name
    arguments: Annotated[tuple[_Text, ...], FailFast(), _checked(check_placeholders)] = Field(
        default=(), max_length=1000
    )


class Target(ContractMessage):
    """Exactly one of webhook and command."""

    webhook: WebhookTarget | None = None
    command: CommandTarget | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            raise ValueError("must have exactly one of webhook and command")
        return self


@lru_cache(maxsize=1024)
def work_key(target: str) -> str:
    """Return the routing key of a target, given as JSON text."""
    command = Target.model_validate_json(target).command
    return WEBHOOK_KEY if command is None else f"{COMMAND_KEY_PREFIX}{command.name}"
