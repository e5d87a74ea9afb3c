"""Columns of runs, derived from the fields of the domain classes; read and write rows."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring as _quoted  # like json.dumps(ensure_ascii=False), but faster
from operator import attrgetter, is_
from types import NoneType
from typing import Any, get_args

from scheduler.domain.messages import Priority, ResultStatus, RunPolicy
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import AttemptOutcome, FinishedAttempt, Occurrence, Origin, Run, RunEnd, RunStatus
from scheduler.postgres.large_values import LargeValues, marked_if_large
from scheduler.postgres.row_text import Column, Row, names
from scheduler.postgres.stored_values import PRIORITIES, read_policy, write_policy
from scheduler.resources import query

_STATE = names(Run, "occurrence", "triggered_by")
_ATTEMPT, _RESULT, _END = names(FinishedAttempt), names(Result), names(RunEnd)
_ABOUT = names(Occurrence)
_STATE_END = len(_STATE)
_STATUS, _ATTEMPTS, _EARLY, _UNANNOUNCED = (
    _STATE.index(name) for name in ("status", "attempts", "early", "unannounced")
)
_JOB_ID, _ORIGIN, _POLICY, _PRIORITY = (_ABOUT.index(name) for name in ("job_id", "origin", "policy", "priority"))

COLUMNS = (*_STATE, *_ABOUT)
# Columns that change after a run was inserted. The occurrence does not, unless results arrived before the run.
CHANGING = (*_STATE, "wake_at")
STORED = (*COLUMNS, "wake_at")
# Columns that the history does not have.
OPEN_ONLY = frozenset({"early", "noted_at", "unannounced", "wake_at"})
KEPT = tuple(name for name in COLUMNS if name not in OPEN_ONLY)
_KINDS = {field.name: field.type for field in (*fields(Run), *fields(Occurrence))} | {"wake_at": datetime}
_TYPES: dict[Any, str] = {
    str: "text", int: "integer", float: "float8", bool: "boolean", datetime: "timestamptz",
    RunStatus: "run_status", Origin: "run_origin", Priority: "priority",
}
AS_JSON = frozenset({"policy", "event", "output", "attempts", "early", "unannounced"})


def selected(columns: Iterable[str] = COLUMNS) -> str:
    """Return the select list for `read`; JSON is read as text."""
    return ", ".join(f"{name}::text AS {name}" if name in AS_JSON else name for name in columns)


def typed(columns: Iterable[str]) -> str:
    """Return the columns with their types, for json_to_recordset."""
    return ", ".join(f"{name} {column_type(name)}" for name in columns)


def column_type(name: str) -> str:
    """Return the type of a column."""
    if name in AS_JSON:
        return "json"
    if name in ("event_id", "job_id"):
        return "uuid"
    kind = _KINDS[name]
    return next(_TYPES[member] for member in (get_args(kind) or (kind,)) if member is not NoneType)


SELECTED = selected()
# For claims, which are limited in bytes. A trace context stored by release 0.2 may be large; then it is omitted.
LARGE = ("event", "output", "attempts", "early", "unannounced")
_OF_DUE = {name: marked_if_large(name, "$10", "$11") for name in LARGE} | {
    name: f"CASE WHEN octet_length({name}) <= 512 THEN {name} END AS {name}"
    for name in ("traceparent", "tracestate")
}
SELECTED_OF_DUE = ", ".join(_OF_DUE.get(name) or selected([name]) for name in COLUMNS)
_ABSENT = {
    "early": "'[]' AS early", "noted_at": "NULL::timestamptz AS noted_at",
    "unannounced": "NULL::text AS unannounced",
}
SELECTED_OF_HISTORY = ", ".join(_ABSENT.get(name) or selected([name]) for name in COLUMNS)
# For batches, which are limited in bytes too.
_MARKED = {name: marked_if_large(name) for name in LARGE}
SELECTED_MARKED = ", ".join(_MARKED.get(name) or selected([name]) for name in COLUMNS)
MARKED_OF_HISTORY = ", ".join((_MARKED | _ABSENT).get(name) or selected([name]) for name in COLUMNS)
LARGE_VALUES = LargeValues("runs", "event_id", LARGE, tuple(map(COLUMNS.index, LARGE)))

# For results, which use few columns of the occurrence and change none.
_UNUSED_BY_RESULT = frozenset(_ABOUT) - {"job_id", "policy", "tenant", "work"}
SELECTED_FOR_RESULT = ", ".join(
    f"NULL AS {name}" if name in _UNUSED_BY_RESULT else selected([name]) for name in COLUMNS
)
_MARKED_COLUMNS_FOR_RESULT = _MARKED | {name: f"NULL AS {name}" for name in _UNUSED_BY_RESULT}
MARKED_FOR_RESULT = ", ".join(_MARKED_COLUMNS_FOR_RESULT.get(name) or selected([name]) for name in COLUMNS)

# For lists: without event and output, which may be large, and with only the last attempt's times.
_UNREAD = _ABSENT | {"event": "'' AS event", "output": "NULL::text AS output",
                     "attempts": query("runs/last_attempt_times")}
BRIEF = ", ".join(_UNREAD.get(name) or selected([name]) for name in COLUMNS)

_state, _about = attrgetter(*_STATE), attrgetter(*_ABOUT)
_attempted, _reported, _ended = attrgetter(*_ATTEMPT), attrgetter(*_RESULT), attrgetter(*_END)
_STATUSES = {status.value: status for status in RunStatus}
_ORIGINS = {origin.value: origin for origin in Origin}


def read(row: Sequence[Any]) -> Run:
    """Return the run of a row selected by SELECTED."""
    state = list(row[:_STATE_END])
    state[_STATUS] = _STATUSES[state[_STATUS]]
    state[_ATTEMPTS] = () if state[_ATTEMPTS] == "[]" else tuple(map(_attempt, json.loads(state[_ATTEMPTS])))
    state[_EARLY] = () if state[_EARLY] == "[]" else tuple(map(_result, json.loads(state[_EARLY])))
    if state[_UNANNOUNCED] is not None:
        state[_UNANNOUNCED] = tuple(map(_end, json.loads(state[_UNANNOUNCED])))
    about = list(row[_STATE_END : _STATE_END + len(_ABOUT)])
    if about[_JOB_ID] is not None:
        about[_ORIGIN] = None if about[_ORIGIN] is None else _ORIGINS[about[_ORIGIN]]
        about[_POLICY] = None if about[_POLICY] is None else read_policy(about[_POLICY])
        about[_PRIORITY] = None if about[_PRIORITY] is None else PRIORITIES[about[_PRIORITY]]
        state.append(Occurrence(*about))
    return Run(*state)


def write(run: Run) -> Row:
    """Return the values of STORED as text."""
    about = (None,) * len(_ABOUT) if run.occurrence is None else _about(run.occurrence)
    return [*_texts(_state(run)), *_texts(about), *_texts((run.wake_at,))]


def write_changing(run: Run) -> Row:
    """Return the values of CHANGING as text."""
    return [*_texts(_state(run)), *_texts((run.wake_at,))]


def write_new(runs: Sequence[Run]) -> dict[str, Column]:
    """Return the columns of STORED that are not empty in all of these runs, as text; each has an occurrence."""
    columns = zip(*[(*_state(run), *_about(run.occurrence), run.wake_at) for run in runs], strict=True)
    return {
        name: _texts(column) for name, column in zip(STORED, columns, strict=True)
        if column.count(None) < len(runs)
    }


def write_changes(before: Sequence[Run], after: Sequence[Run]) -> dict[str, Column]:
    """Return the columns of CHANGING that differ in any of these runs, as text, with the ids first.

    A result changes few columns, and each column takes time to write and to read.
    """
    old, new = (zip(*[_state(run) for run in runs], strict=True) for runs in (before, after))
    changed = {
        name: _texts(is_now) for name, was, is_now in zip(_STATE, old, new, strict=True)
        if name == "event_id" or not all(map(is_, was, is_now))
    }
    return changed | {"wake_at": _texts([run.wake_at for run in after])}  # nearly always changes


def _texts(values: Iterable[Any]) -> Row:
    return [value if value is None or type(value) is str else _WRITERS[type(value)](value) for value in values]


@lru_cache(maxsize=64)
def _iso(moment: datetime) -> str:
    """Format a time; most times of a batch are the same."""
    return moment.isoformat()


def _tuple(values: tuple[FinishedAttempt | Result | RunEnd, ...]) -> str:
    return f"[{','.join(map(_object, values))}]" if values else "[]"


def _object(value: FinishedAttempt | Result | RunEnd) -> str:
    """Write the fields that are set as JSON; json.dumps is slower, because it creates an encoder for each call."""
    field_names, read_values = _OBJECTS[type(value)]
    return "{" + ",".join([
        f'"{name}":{_JSON[type(item)](item)}'
        for name, item in zip(field_names, read_values(value), strict=True)
        if item is not None and item is not False
    ]) + "}"


_MOMENTS = frozenset({"started_at", "finished_at", "emitted_at", "ended_at"})


def _moments(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if name in _MOMENTS else value
        for name, value in values.items()
    }


def _attempt(values: dict[str, Any]) -> FinishedAttempt:
    empty: dict[str, Any] = dict.fromkeys(("worker", "started_at", "error", "output"))
    return FinishedAttempt(**empty | _moments(values) | {"outcome": AttemptOutcome(values["outcome"])})


def _result(values: dict[str, Any]) -> Result:
    given: dict[str, Any] = {"retry": False} | values  # False is omitted in JSON
    return Result(**_moments(given) | {"status": ResultStatus(values["status"])})


def _end(values: dict[str, Any]) -> RunEnd:
    empty: dict[str, Any] = dict.fromkeys(("emitted_at", "started_at", "ended_at", "outcome", "error", "output"))
    outcome = values.get("outcome")
    read = {"status": RunStatus(values["status"]), "outcome": None if outcome is None else AttemptOutcome(outcome)}
    return RunEnd(**empty | _moments(values) | read)


_OBJECTS: dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {
    FinishedAttempt: (_ATTEMPT, _attempted), Result: (_RESULT, _reported), RunEnd: (_END, _ended),
}
_JSON: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    int: str,
    float: repr,
    bool: lambda _: "true",
    datetime: lambda moment: f'"{_iso(moment)}"',
    AttemptOutcome: _quoted,
    ResultStatus: _quoted,
    RunStatus: _quoted,
}
_WRITERS: dict[type, Callable[[Any], str]] = {
    datetime: _iso,
    int: str,
    float: str,
    bool: lambda flag: "true" if flag else "false",
    tuple: _tuple,
    RunStatus: str,
    Origin: str,
    Priority: str,
    RunPolicy: write_policy,
}
