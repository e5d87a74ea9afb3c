"""The parts of the job form for all kinds of targets."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from scheduler.api.console.form_fields import ParsedForm
from scheduler.api.console.targets.target_form import TargetForm
from scheduler.domain.targets.target import TARGETS

TARGET_FORMS: dict[str, TargetForm] = {
    kind: import_module(f"scheduler.api.console.targets.{kind}").FORM for kind in TARGETS
}
INPUTS = (*(name for part in TARGET_FORMS.values() for name in part.inputs), "pool")


def read_target(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the target of a form; fields of the stored one that the form does not show are kept."""
    kind = form.get("then", "message")
    part = TARGET_FORMS.get(kind)
    if part is None:
        return None
    before = stored.get(kind) or {}
    others = {name: value for name, value in before.items() if name not in part.shown}
    pool = (form.get("pool") or "").strip()
    return {kind: others | part.read(form, read, before)} | ({"pool": pool} if pool else {})


def target_values(target: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs of a target."""
    kind = target_kind(target)
    if kind is None:
        return {"then": "message"}
    pool = {"pool": str(target["pool"])} if target.get("pool") else {}
    return {"then": kind} | TARGET_FORMS[kind].values(target[kind]) | pool


def target_kind(target: Mapping[str, Any]) -> str | None:
    """Return the kind of a target."""
    return next((kind for kind in TARGET_FORMS if target.get(kind)), None)


def target_summary(target: Mapping[str, Any]) -> tuple[str, str]:
    """Return a verb and a line of code, such as `calls` and `POST https://example.org`."""
    kind = target_kind(target)
    return ("", "") if kind is None else TARGET_FORMS[kind].summary(target[kind])
