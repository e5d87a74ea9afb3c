"""Generate the OpenAPI document from the routes and the command models."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from scheduler.api.api_responses import ProblemView
from scheduler.domain.messages import JobCommand, ScheduleRequest, ScheduleResult, ScheduleRetry
from scheduler.domain.recurrence.adjustment_fields import MAX_JITTER, MAX_NAME
from scheduler.domain.recurrence.business_calendar import OnClosed
from scheduler.domain.schedule_fields import RULE_FIELDS

_REF = "#/components/schemas/{model}"
# Name of the body in the document: its message model, and the field that the path may supply instead.
_BODIES: dict[str, tuple[type[BaseModel], str]] = {
    "NewJob": (ScheduleRequest, "id"),
    "JobCommand": (JobCommand, "id"),
    "RunRetry": (ScheduleRetry, "event_id"),
    "RunResult": (ScheduleResult, "event_id"),
}

_WEEKDAYS = {"type": "array", "items": {"enum": ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]}}
_DATES = {"type": "object", "additionalProperties": {"type": "string", "maxLength": MAX_NAME}}
_CALENDAR = {
    "type": "object", "additionalProperties": False,
    "properties": {"weekend": _WEEKDAYS, "closed": _DATES, "open": _DATES,
                   "valid_until": {"type": "string", "format": "date"}},
}
_TIME_OF_DAY = {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}
_ADJUSTMENTS: dict[str, Any] = {
    "calendar": {"anyOf": [{"type": "string"}, _CALENDAR],
                 "description": "The name of a calendar, or its fields."},
    "on_closed": {"enum": list(OnClosed), "default": "skip",
                  "description": "Handling of an occurrence on a closed day. Needs a calendar."},
    "window": {"type": "object", "additionalProperties": False, "required": ["from", "to"],
               "properties": {"from": _TIME_OF_DAY, "to": _TIME_OF_DAY, "days": _WEEKDAYS},
               "description": "The hours, in timezone, in which the event may be emitted."},
    "jitter": {"type": "number", "minimum": 0, "maximum": MAX_JITTER,
               "description": "Seconds: each occurrence is emitted up to this much later."},
    "tenant": {"type": "string", "description": "The owner of the job and of the calendar."},
    "id": {"type": "string", "format": "uuid", "description": "The job, on which the jitter depends."},
}


def describe(app: FastAPI) -> None:
    """Make the application include request bodies and error responses in its OpenAPI document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI documents this way to extend it


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes,
                        openapi_version="3.1.0")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name, (model, path_field) in _BODIES.items():
        schema = model.model_json_schema(ref_template=_REF)
        schemas.update(schema.pop("$defs", {}))
        schema["required"] = [field for field in schema.get("required", []) if field != path_field]
        schemas[name] = schema | {"title": name}
    schemas["Calendar"] = _CALENDAR | {"title": "Calendar", "description": "The content of a calendar."}
    schemas["Preview"] = _preview(schemas["NewJob"])
    problem = ProblemView.model_json_schema(ref_template=_REF)
    schemas.update(problem.pop("$defs", {}))
    schemas["ProblemView"] = problem
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's, which the API never sends
        schemas.pop(name, None)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _preview(request: dict[str, Any]) -> dict[str, Any]:
    fields = {name: request["properties"][name] for name in (*RULE_FIELDS, "manual")}
    fields |= _ADJUSTMENTS
    fields["after"] = {"type": "string", "description": "Only occurrences after this instant."}
    fields["count"] = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10}
    return {"title": "Preview", "type": "object", "additionalProperties": False, "properties": fields,
            "description": "The schedule fields of a request, tenant, id, after, and count."}
