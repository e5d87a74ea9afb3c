"""Columns of jobs, derived from the fields of the domain classes; read and write rows.

Rows are read and written by name in this order, independent of the table's order. Other columns belong to the
database alone: creation and finish times, wake_at, and the outcome of the last event.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter, is_
from typing import Any

from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.messages import DEFAULT_TENANT, OnMissed, Priority, RunPolicy
from scheduler.domain.recurrence import Spec, zone
from scheduler.postgres.large_values import LargeValues, marked_if_large
from scheduler.postgres.row_text import Column, Row, interval, names
from scheduler.postgres.stored_values import PRIORITIES, read_policy, write_policy

_STATE = names(Job, "definition")
_DEFINITION = names(Definition, "spec")
_SPEC = names(Spec)
_STATE_END, _ASKED_END = len(_STATE), len(_STATE) + len(_DEFINITION)
COLUMNS = (*_STATE, *_DEFINITION, *_SPEC)
_SPEC_END = len(COLUMNS)
_JOB_TYPE, _RUN, _NEXT_RUN_AT = (COLUMNS.index(name) for name in ("job_type", "run", "next_run_at"))
DEFINED = (*_DEFINITION, *_SPEC)
# The columns of a new job; the others have the table's defaults.
_FRESH_STATE = ("id", "requested_at", "next_run_at", "tenant", "zone_version")
_ADJUSTING = ("calendar", "sending_window", "jitter")  # only a schedule with one of these has the next columns
_ADJUSTED = ("nominal_at", "settled_until", "settled_due", "reported_until", "skip_at", "calendar_revision")
FRESH = (*_FRESH_STATE, *_ADJUSTED, *_DEFINITION, *_SPEC)
# The table's defaults of these columns, which are left out if all new jobs have them.
DEFAULTS: dict[str, Any] = {"tenant": DEFAULT_TENANT, "on_missed": OnMissed.LATEST, "timezone": "UTC"}
AS_JSON = frozenset({"payload", "run", "target"})
# Read as text: payloads are returned byte for byte.
_TEXTS = {name: f"{name}::text AS {name}" for name in AS_JSON}
SELECTED = ", ".join(_TEXTS.get(name, name) for name in COLUMNS)
# Due jobs are read without the columns that emission does not use, because each value takes time to fetch.
# requested_at matters only for jobs that were paused.
_TRACE = ("traceparent", "tracestate")
_UNUSED = ("name", "description", "triggered_at", "cancelled_at", "start_source")
_OF_DUE = _TEXTS | {name: f"NULL AS {name}" for name in _UNUSED} | {
    "status": "'pending' AS status",
    "requested_at": "CASE WHEN paused_at IS NOT NULL THEN requested_at END AS requested_at",
}
LARGE = ("payload", "target")
_OF_DUE |= {name: marked_if_large(name, "$10", "$11") for name in LARGE}
# Release 0.2 stored trace contexts of any size.
_OF_DUE |= {name: f"CASE WHEN octet_length({name}) <= 512 THEN {name} END AS {name}" for name in _TRACE}
_MARKED = _TEXTS | {name: marked_if_large(name) for name in LARGE}
SELECTED_WITHOUT_PAYLOAD = ", ".join((_TEXTS | {"payload": "'{}' AS payload"}).get(name, name) for name in COLUMNS)
# Planning again and reports of skipped occurrences use neither payload nor target.
_OF_PLAN = _TEXTS | {"payload": "'{}' AS payload", "target": "NULL::text AS target"}
SELECTED_OF_PLAN = ", ".join(_OF_PLAN.get(name, name) for name in COLUMNS)
SELECTED_MARKED = ", ".join(_MARKED.get(name, name) for name in COLUMNS)
LARGE_VALUES = LargeValues("jobs", "id", LARGE, tuple(map(COLUMNS.index, LARGE)))
# Only if it is not the version of this process, because nearly all rows have that one.
_OF_DUE["zone_version"] = "CASE WHEN zone_version <> '{zone_version}' THEN zone_version END AS zone_version"
SELECTED_OF_DUE = ", ".join(_OF_DUE.get(name, name) for name in COLUMNS)

_state, _asked, _spec = attrgetter(*_STATE), attrgetter(*_DEFINITION), attrgetter(*_SPEC)
_fresh, _adjusted = attrgetter(*_FRESH_STATE), attrgetter(*_ADJUSTED)
_definition, _spec_of = attrgetter("definition"), attrgetter("spec")
_TEXT_OR_NONE = {str, type(None)}
# Constructed by position from rows of a length unknown to the type checker.
_Job: Callable[..., Job] = Job
_Definition: Callable[..., Definition] = Definition
_Spec: Callable[..., Spec] = Spec
_STATUSES = {status.value: status for status in JobStatus}  # much faster than JobStatus(value)
_POLICIES = {policy.value: policy for policy in OnMissed}
_UNDEFINED = tuple(({"payload": "{}"} | DEFAULTS).get(name) for name in (*_DEFINITION, *_SPEC))


def read(row: Sequence[Any]) -> Job:
    """Return the job of a row selected by SELECTED, whose columns have the order of the classes' fields."""
    definition = None
    if row[_JOB_TYPE] is not None:
        spec = _Spec(*row[_ASKED_END:_SPEC_END])
        if spec.starts_at is None or (spec.dtstart is None and spec.rrule is not None):
            _fill_start(spec, row[_NEXT_RUN_AT])
        definition = _Definition(*row[_STATE_END:_ASKED_END], spec)
        definition.on_missed = _POLICIES[definition.on_missed]
        if definition.priority is not None:
            definition.priority = PRIORITIES[definition.priority]
        if definition.run is not None:
            definition.run = read_policy(row[_RUN])
    job = _Job(*row[:_STATE_END], definition)
    job.status = _STATUSES[job.status]
    job.triggers = tuple(job.triggers)
    if job.unsettled is not None:
        job.unsettled = tuple(job.unsettled)
    return job


def _fill_start(spec: Spec, next_run_at: datetime | None) -> None:
    """Use the next run as the start if a row written by hand has none."""
    spec.starts_at = spec.starts_at or next_run_at or datetime.max.replace(tzinfo=UTC)
    if spec.dtstart is None and spec.rrule is not None:
        spec.dtstart = spec.starts_at.astimezone(zone(spec.timezone)).replace(tzinfo=None)


def write(job: Job) -> Row:
    """Return the values of COLUMNS as text."""
    return _texts(_state(job) + _defined(job))


def write_definition(job: Job) -> Row:
    """Return the values of DEFINED as text."""
    return _texts(_defined(job))


def write_fresh(jobs: Sequence[Job]) -> dict[str, Column]:
    """Return the columns of FRESH in which not all of these jobs have the table's default, as text."""
    definitions = list(map(_definition, jobs))
    specs = list(map(_spec_of, definitions))
    # By column: most are empty, and one value at a time would take longer.
    values = dict(zip(_FRESH_STATE, zip(*map(_fresh, jobs), strict=True), strict=True))
    values |= zip(_DEFINITION, zip(*map(_asked, definitions), strict=True), strict=True)
    values |= zip(_SPEC, zip(*map(_spec, specs), strict=True), strict=True)
    if any(values[name].count(None) < len(jobs) for name in _ADJUSTING):
        values |= zip(_ADJUSTED, zip(*map(_adjusted, jobs), strict=True), strict=True)
    # For most one-time jobs the first run is the start; format the time only once.
    start = values.pop("starts_at") if all(map(is_, values["starts_at"], values["next_run_at"])) else None
    texts = {
        name: _column(column) for name, column in values.items()
        if column.count(DEFAULTS.get(name)) < len(jobs)
    }
    if start is not None and "next_run_at" in texts:
        texts["starts_at"] = texts["next_run_at"]
    return texts


def _defined(job: Job) -> tuple[Any, ...]:
    definition = job.definition
    return _UNDEFINED if definition is None else _asked(definition) + _spec(definition.spec)


def _column(values: tuple[Any, ...]) -> Column:
    kinds = set(map(type, values))
    if len(kinds) > 1 or str in kinds:
        return values if kinds <= _TEXT_OR_NONE else _texts(values)
    return list(map(_WRITERS[kinds.pop()], values))


def _texts(values: tuple[Any, ...]) -> list[str | None]:
    return [
        value if value is None or value.__class__ is str else _WRITERS[value.__class__](value) for value in values
    ]


_WRITERS: dict[type, Callable[[Any], str]] = {
    datetime: datetime.isoformat,
    timedelta: interval,
    int: str,
    tuple: lambda moments: f"{{{','.join(map(datetime.isoformat, moments))}}}",
    JobStatus: attrgetter("value"),
    OnMissed: attrgetter("value"),
    Priority: attrgetter("value"),
    RunPolicy: write_policy,
}
