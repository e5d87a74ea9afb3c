"""Describe handlers for the catalogue: descriptions, parameters and defaults from their payload models."""

from typing import Any

from pydantic import BaseModel, PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from scheduler.client.handlers import Handlers
from scheduler.domain.handler_catalogue import HandlerOffer


def handler_offers(handlers: Handlers) -> list[HandlerOffer]:
    """Return the catalogue's entry of each handler."""
    offers = []
    for job_type, handler in handlers:
        model = handler.model.model_fields["payload"].annotation
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        offers.append(HandlerOffer.model_construct(
            job_type=job_type, description=handler.description, parameters=_schema(model) if is_model else None,
            defaults=_defaults(model) if is_model else {},
        ))
    return offers


def _schema(model: Any) -> dict[str, Any] | None:
    try:
        schema: dict[str, Any] = model.model_json_schema()
    except PydanticUserError:  # a type without a JSON Schema
        return None
    return schema


def _defaults(model: Any) -> dict[str, Any]:
    defaults = {}
    for name, field in model.model_fields.items():
        if field.is_required() or field.default_factory is not None:  # a factory's values may differ each time
            continue
        try:
            defaults[field.alias or name] = to_jsonable_python(field.default)
        except PydanticSerializationError:
            continue
    return defaults
