"""The OpenAPI document: made from the routes and from the models that commands are read by."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from scheduler.api.api_responses import ProblemView
from scheduler.domain.messages import SchedulePause, ScheduleRequest, ScheduleResult, ScheduleRetry
from scheduler.domain.recurrence.adjustment_fields import LONGEST_NAME, MOST_JITTER
from scheduler.domain.recurrence.business_calendar import OnClosed

_REF = "#/components/schemas/{model}"
# What a body is called in the document, the message it is read as, and the field that the path may give instead.
_BODIES: dict[str, tuple[type[BaseModel], str]] = {
    "NewJob": (ScheduleRequest, "id"),
    "JobCommand": (SchedulePause, "id"),
    "RunRetry": (ScheduleRetry, "event_id"),
    "RunResult": (ScheduleResult, "event_id"),
}
_SCHEDULE_FIELDS = ("run_at", "rrule", "cron", "every", "timezone")

_WEEKDAYS = {"type": "array", "items": {"enum": ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]}}
_DATES = {"type": "object", "additionalProperties": {"type": "string", "maxLength": LONGEST_NAME}}
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
                  "description": "What happens to an occurrence on a closed day. Needs a calendar."},
    "window": {"type": "object", "additionalProperties": False, "required": ["from", "to"],
               "properties": {"from": _TIME_OF_DAY, "to": _TIME_OF_DAY, "days": _WEEKDAYS},
               "description": "The hours, in timezone, in which the event may be emitted."},
    "jitter": {"type": "number", "minimum": 0, "maximum": MOST_JITTER,
               "description": "Seconds: each occurrence is emitted up to this much later."},
    "tenant": {"type": "string", "description": "The owner of the job and of the calendar."},
    "id": {"type": "string", "format": "uuid", "description": "The job, on which the jitter depends."},
}


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
    fields |= _ADJUSTMENTS
    fields["after"] = {"type": "string", "description": "Only what comes after this."}
    fields["count"] = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10}
    return {"title": "Preview", "type": "object", "additionalProperties": False, "properties": fields,
            "description": "The schedule fields of a request, tenant, id, after, and count."}
