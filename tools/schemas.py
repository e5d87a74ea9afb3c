"""Writes the JSON Schemas of the contract from its models: `make schemas`."""

import json
from pathlib import Path

from pydantic import BaseModel

from scheduler.domain import messages
from scheduler.resources import folder
from tools.message_examples import EXAMPLES

MODELS: tuple[type[BaseModel], ...] = (
    *messages.COMMAND_MODELS.values(),
    *messages.RESULT_MODELS.values(),
    messages.ScheduleAccepted,
    messages.ScheduleRecorded,
    messages.ScheduleFinished,
    messages.ScheduleRejected,
    messages.ScheduleDue,
    messages.ScheduleMissed,
)
_INCOMING: dict[str, type[BaseModel]] = {**messages.COMMAND_MODELS, **messages.RESULT_MODELS}
OPENAPI = "openapi.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """Return each schema file's name and text."""
    found = {}
    for model in MODELS:
        incoming = model in _INCOMING.values()
        mode = "validation" if incoming else "serialization"
        schema = {
            "$schema": _DIALECT,
            **model.model_json_schema(mode=mode),  # type: ignore[arg-type]
            "examples": EXAMPLES[model.__name__],
        }
        found[f"{model.__name__}.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return found


def openapi() -> str:
    """Return the OpenAPI document of the REST API."""
    from scheduler.api.app import build  # noqa: PLC0415 - the messages' own schemas need no FastAPI

    return json.dumps(build().openapi(), indent=2, ensure_ascii=False) + "\n"


def write(where: Path) -> None:
    """Write every schema into a folder."""
    for name, text in schemas().items():
        (where / name).write_text(text, encoding="utf-8")
    (where / OPENAPI).write_text(openapi(), encoding="utf-8")


if __name__ == "__main__":
    write(folder("schemas"))
