"""Commands in the console."""

from collections.abc import Mapping
from typing import Any

from scheduler.api.console.form_fields import ParsedForm
from scheduler.api.console.targets.target_form import TargetForm


def _read(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the same for all kinds
    lines = (form.get("arguments") or "").replace("\r\n", "\n").split("\n")
    arguments = [line for line in lines if line]
    return {"name": (form.get("command") or "").strip()} | ({"arguments": arguments} if arguments else {})


def _values(command: Mapping[str, Any]) -> dict[str, str]:
    return {"command": str(command.get("name", "")),
            "arguments": "\n".join(map(str, command.get("arguments") or ()))}


def _summary(command: Mapping[str, Any]) -> tuple[str, str]:
    return "runs", " ".join(map(str, (command.get("name"), *(command.get("arguments") or ()))))


FORM = TargetForm(
    "run a command", ("command", "arguments"), frozenset({"name", "arguments"}), _read, _values, _summary,
)
