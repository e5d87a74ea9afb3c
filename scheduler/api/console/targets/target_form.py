"""One kind of target in the job form; its inputs are in templates/targets/KIND.html."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.api.console.form_fields import ParsedForm

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TargetForm:
    """The console's form for one kind of target."""

    label: str  # of the choice
    inputs: tuple[str, ...]  # their names
    shown: frozenset[str]  # the fields that the inputs show; others of a stored target are kept
    read: Callable[[Mapping[str, str], ParsedForm, Fields], dict[str, Any]]  # from inputs, problems, stored target
    values: Callable[[Fields], dict[str, str]]  # target → inputs
    summary: Callable[[Fields], tuple[str, str]]  # target → a verb and a line of code
