"""The OpenAPI document: made from the routes and from the models that commands are read by."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from scheduler.api.answers import ProblemView
from scheduler.domain.messages import SchedulePause, ScheduleRequest, ScheduleResult, ScheduleRetry

_REF = "#/components/schemas/{model}"
# What a body is called in the document, the message it is read as, and the field that the path may give instead.
_BODIES: dict[str, tuple[type[BaseModel], str]] = {
    "NewJob": (ScheduleRequest, "id"),
    "JobCommand": (SchedulePause, "id"),
    "RunRetry": (ScheduleRetry, "event_id"),
    "RunResult": (ScheduleResult, "event_id"),
}
_SCHEDULE_FIELDS = ("run_at", "rrule", "cron", "every", "timezone")


def describe(app: FastAPI) -> None:
    """Have the application tell of its bodies and its problems."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes,
                        openapi_version="3.1.0")
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name, (model, given) in _BODIES.items():
        schema = model.model_json_schema(ref_template=_REF)
        schemas.update(schema.pop("$defs", {}))
        schema["required"] = [each for each in schema.get("required", []) if each != given]
        schemas[name] = schema | {"title": name}
    schemas["Preview"] = _preview(schemas["NewJob"])
    problem = ProblemView.model_json_schema(ref_template=_REF)
    schemas.update(problem.pop("$defs", {}))
    schemas["ProblemView"] = problem
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which is never answered
        schemas.pop(name, None)
    found["components"]["schemas"] = dict(sorted(schemas.items()))
    return found


def _preview(request: dict[str, Any]) -> dict[str, Any]:
    fields = {name: request["properties"][name] for name in _SCHEDULE_FIELDS}
    fields["after"] = {"type": "string", "description": "Only what comes after this."}
    fields["count"] = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10}
    return {"title": "Preview", "type": "object", "additionalProperties": False, "properties": fields,
            "description": "The schedule fields of a request, after, and count."}
