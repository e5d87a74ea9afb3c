"""Writes the JSON Schemas of the contract from its models, and their names into SQL and shell: `make schemas`."""

import json
import re
from pathlib import Path

from pydantic import BaseModel

from scheduler.domain import messages
from scheduler.domain.targets.target import SHARED_QUEUES
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
    messages.CalendarAccepted,
    messages.CalendarRejected,
    messages.ScheduleReplanned,
)
_INCOMING: dict[str, type[BaseModel]] = {**messages.COMMAND_MODELS, **messages.RESULT_MODELS}
OPENAPI = "openapi.json"
_QUEUES = "|".join(queue.removeprefix("scheduler_") for queue in SHARED_QUEUES)
# Files in sql/ that list commands or queues, with patterns of the lists.
_LISTS = {
    "host/outbox.sql": {
        r"(?<=CHECK \(kind IN \().*(?=\)\);)": ", ".join(f"'{kind}'" for kind in messages.COMMAND_MODELS),
    },
    "roles/rabbitmq.sh": {
        r"(?<=schedule\.commands '\^\()request.*(?=\|result\)\$')": "|".join(messages.COMMAND_MODELS),
        r"(?<=\(inbox\|results\|dead\|).*?(?=\|delay\))": _QUEUES,
        r"(?<=worker scheduler_worker \"\$WORKER_PASSWORD\" ').*(?=\|')": _QUEUES,
    },
}
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


def with_lists(path: str) -> str:
    """Return the text of a file in `sql/`, with all commands and queues."""
    text = (folder("sql") / path).read_text(encoding="utf-8")
    for pattern, names in _LISTS[path].items():
        text, replaced = re.subn(pattern, lambda _, names=names: names, text)  # type: ignore[misc]
        if not replaced:
            raise ValueError(f"{path} does not match {pattern}")
    return text


def write(where: Path) -> None:
    """Write every schema into a folder, and the lists of commands and queues in `sql/`."""
    for path in _LISTS:
        (folder("sql") / path).write_text(with_lists(path), encoding="utf-8")
    for name, text in schemas().items():
        (where / name).write_text(text, encoding="utf-8")
    (where / OPENAPI).write_text(openapi(), encoding="utf-8")


if __name__ == "__main__":
    write(folder("schemas"))
