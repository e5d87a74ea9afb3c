"""Compare two runs, field by field and line by line."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from scheduler.api.console.formatting import NOTHING, duration_of, local, span
from scheduler.api.console.sent_request import sent_request
from scheduler.domain.runs.run import Run
from scheduler.views.base import Verbatim, stored
from scheduler.views.runs import whole_run_view

_MAX_LINES = 300  # that are compared and shown of each text
Lines = Sequence[tuple[str, bool]]  # with whether the line differs


@dataclass(frozen=True, slots=True)
class ComparedField:
    """One field of two runs, as lines."""

    label: str
    left: Lines
    right: Lines
    differs: bool
    code: bool = False  # several lines of JSON or output


def compare_runs(left: Run, right: Run) -> list[ComparedField]:
    """Return the fields of two runs."""
    return [_compared(label, one, other, code=code)
            for (label, one, code), (_, other, _) in zip(_fields(left), _fields(right), strict=True)]


def _fields(run: Run) -> list[tuple[str, str, bool]]:
    view = whole_run_view(run)
    event = stored(run.occurrence.event) if run.occurrence and run.occurrence.event else None
    sent = sent_request(event)
    payload = event.get("payload") if isinstance(event, dict) else event
    fields = view.model_dump()
    return [
        ("Status", view.status, False), ("Due", local(view.due_at), False),
        ("Attempts", str(view.attempt), False),
        ("Duration", span(duration_of(fields)), False), ("Worker", view.worker or NOTHING, False),
        ("Error", view.error or NOTHING, False), ("Output", _text(view.output), True),
        ("Payload", _text(payload), True),
        ("Request", NOTHING if sent is None else f"{sent.method} {sent.url}", False),
        ("Request body", NOTHING if sent is None else _text(sent.body), True),
    ]


def _text(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, Verbatim):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def _compared(label: str, left: str, right: str, *, code: bool) -> ComparedField:
    one, other = left.splitlines()[:_MAX_LINES], right.splitlines()[:_MAX_LINES]
    if left == right:
        return ComparedField(label, [(line, False) for line in one], [(line, False) for line in other],
                             differs=False, code=code)
    same_left, same_right = set[int](), set[int]()
    for block in SequenceMatcher(None, one, other).get_matching_blocks():
        same_left |= set(range(block.a, block.a + block.size))
        same_right |= set(range(block.b, block.b + block.size))
    return ComparedField(label, [(line, at not in same_left) for at, line in enumerate(one)],
                         [(line, at not in same_right) for at, line in enumerate(other)], differs=True, code=code)
