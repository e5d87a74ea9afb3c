"""The columns of a job, made from the fields that it has in the domain: there is no second list to keep.

A row is read and written by these names in this order, whatever the order of the table. What is not among them is
the database's own: when a row was made and finished, when it wakes, and what became of its last event.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.jobs.missed import OnMissed
from scheduler.domain.recurrence import Spec, zone

Row = Sequence[str | None]


def _names(kind: type, but: str = "") -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name != but)


_STATE = _names(Job, but="definition")
_ASKED = _names(Definition, but="spec")
_SPEC = _names(Spec)
_STATE_END, _ASKED_END = len(_STATE), len(_STATE) + len(_ASKED)
_STATUS, _TRIGGERS = _STATE.index("status"), _STATE.index("triggers")
_JOB_TYPE, _ON_MISSED = _ASKED.index("job_type"), _ASKED.index("on_missed")
_STARTS_AT, _NEXT_RUN_AT = _SPEC.index("starts_at"), _STATE.index("next_run_at")

COLUMNS = (*_STATE, *_ASKED, *_SPEC)
# What a request brings; of a job that has only just been asked for, all else is as the table's defaults say.
FRESH = ("id", "requested_at", "next_run_at", *_ASKED, *_SPEC)
# Read as text: the payload is handed back byte for byte, not as what Python makes of it.
SELECTED = ", ".join("payload::text AS payload" if name == "payload" else name for name in COLUMNS)

_state, _asked, _spec = attrgetter(*_STATE), attrgetter(*_ASKED), attrgetter(*_SPEC)
_fresh = attrgetter(*FRESH[:3])
_STATUSES = {each.value: each for each in JobStatus}  # much quicker than asking the enum
_POLICIES = {each.value: each for each in OnMissed}
_NOTHING = {"payload": "{}", "on_missed": OnMissed.LATEST, "timezone": "UTC"}
_UNDEFINED = tuple(_NOTHING.get(name) for name in (*_ASKED, *_SPEC))


def read(row: Sequence[Any]) -> Job:
    """Make a job of a row that was selected by SELECTED."""
    state = list(row[:_STATE_END])
    state[_STATUS] = _STATUSES[state[_STATUS]]
    state[_TRIGGERS] = tuple(state[_TRIGGERS])
    asked = list(row[_STATE_END:_ASKED_END])
    if asked[_JOB_TYPE] is None:
        return Job(*state)
    asked[_ON_MISSED] = _POLICIES[asked[_ON_MISSED]]
    spec = Spec(*row[_ASKED_END : _ASKED_END + len(_SPEC)])
    if spec.starts_at is None or (spec.dtstart is None and spec.rrule is not None):
        _complete(spec, state[_NEXT_RUN_AT])
    asked.append(spec)
    state.append(Definition(*asked))
    return Job(*state)


def _complete(spec: Spec, next_run_at: datetime | None) -> None:
    """A row written by hand may lack its start: then it is its next run."""
    spec.starts_at = spec.starts_at or next_run_at or datetime.max.replace(tzinfo=UTC)
    if spec.dtstart is None and spec.rrule is not None:
        spec.dtstart = spec.starts_at.astimezone(zone(spec.timezone)).replace(tzinfo=None)


def write(job: Job) -> Row:
    """Return the values of COLUMNS as text."""
    return [*_texts(_state(job)), *_defined(job)]


def write_fresh(job: Job) -> Row:
    """Return the values of FRESH as text."""
    return [*_texts(_fresh(job)), *_defined(job)]


def _defined(job: Job) -> Row:
    definition = job.definition
    return _texts(_UNDEFINED if definition is None else _asked(definition) + _spec(definition.spec))


def _texts(values: Iterable[Any]) -> Row:
    return [each if each is None or type(each) is str else _WRITERS[type(each)](each) for each in values]


def _interval(span: timedelta) -> str:
    """Write a span as seconds, never as days: a day would be 23 or 25 hours in some zones."""
    return f"{span // timedelta(microseconds=1)} microseconds"


_WRITERS: dict[type, Callable[[Any], str]] = {
    datetime: datetime.isoformat,
    timedelta: _interval,
    int: str,
    tuple: lambda moments: f"{{{','.join(map(datetime.isoformat, moments))}}}",
    JobStatus: str,
    OnMissed: str,
}


def copy_line(row: Row) -> str:
    """Write a row in COPY's text format. Every text is a host's until shown otherwise, so every one is escaped."""
    line = "\t".join([r"\N" if each is None else each for each in row])
    if line.count("\\") == row.count(None) and line.count("\t") == len(row) - 1 and _one_line(line):
        return line + "\n"  # nearly always: nothing in it means anything to COPY
    return "\t".join([r"\N" if each is None else _escaped(each) for each in row]) + "\n"


def _one_line(text: str) -> bool:
    return "\n" not in text and "\r" not in text


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    )


def json_record(row: Row) -> str:
    """Write a row of COLUMNS as a JSON object; the payload is JSON already."""
    return "{" + ",".join([
        f'"{name}":{value if name == "payload" else json.dumps(value)}'
        for name, value in zip(COLUMNS, row, strict=True)
    ]) + "}"
