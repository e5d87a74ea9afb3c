"""The target that calls a URL."""

from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field

from scheduler.domain.targets.base import StringMap, WorkTarget, checked
from scheduler.domain.targets.credential_masks import (
    is_masked,
    mask_url,
    mask_value,
    unmask_url,
    unmask_values,
    url_has_masks,
)
from scheduler.domain.targets.headers import check_headers
from scheduler.domain.targets.placeholders import check_placeholders
from scheduler.domain.targets.urls import check_url

_NAMED_VALUES = ("headers", "query")


class WebhookTarget(WorkTarget):
    """Call a URL."""

    kind: ClassVar[str] = "webhook"
    key: ClassVar[str] = "webhook"
    queue: ClassVar[str] = "scheduler_webhooks"
    offer: ClassVar[str | None] = "webhooks"

    url: Annotated[str, Field(strict=True, min_length=1, max_length=2000), checked(check_url, check_placeholders)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: Annotated[StringMap, checked(check_headers)] = Field(
        default_factory=dict, description="The worker substitutes {{secret.NAME}} in values.",
    )
    query: Annotated[StringMap, checked(check_placeholders)] = Field(default_factory=dict)
    body: Annotated[Any, checked(check_placeholders)] = Field(
        default=None, description="A JSON value, or a string that is sent verbatim. "
        "Default: the ScheduleDue without its target.",
    )
    timeout: Annotated[float, Field(ge=1, le=900, allow_inf_nan=False, strict=True)] = Field(
        default=30, description="Seconds for the whole request."
    )
    secret: Annotated[str, Field(strict=True, min_length=1, max_length=100)] | None = Field(
        default=None, description="Name of the secret that signs the request."
    )

    @classmethod
    def masked(cls, target: dict[str, Any]) -> dict[str, Any]:
        """Return its JSON with literal credentials masked in headers, query and URL."""
        shown = dict(target)
        for field in _NAMED_VALUES:
            if isinstance(values := target.get(field), dict):
                shown[field] = {name: mask_value(name, value) for name, value in values.items()}
        if isinstance(target.get("url"), str):
            shown["url"] = mask_url(target["url"])
        return shown

    def has_masks(self) -> bool:
        """Return whether a credential is masked."""
        values = (*self.headers.items(), *self.query.items())
        return any(is_masked(name, value) for name, value in values) or url_has_masks(self.url)

    def with_credentials(self, stored: Self | None) -> Self:
        """Return the webhook with masks replaced by stored credentials. Raises Rejected.

        The scheme, host and port must be the same, or an editor could send the credential to another host.
        """
        if stored is not None and _origin(stored.url) != _origin(self.url):
            stored = None
        changed: dict[str, Any] = {}
        for field in _NAMED_VALUES:
            before = {} if stored is None else getattr(stored, field)
            values = unmask_values(getattr(self, field), before, f"target.webhook.{field}")
            if values != getattr(self, field):
                changed[field] = values
        url = unmask_url(self.url, "" if stored is None else stored.url, "target.webhook.url")
        if url != self.url:
            changed["url"] = url
        return self.model_copy(update=changed)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default
