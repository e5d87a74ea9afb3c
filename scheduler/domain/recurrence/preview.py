"""Preview the occurrences of a schedule that is not stored."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any
from uuid import UUID

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.recurrence.adjustment_fields import (
    FindCalendar,
    checked_planner,
    read_adjustments,
)
from scheduler.domain.recurrence.adjustment_notes import adjustment_note, skip_note
from scheduler.domain.recurrence.dst_notes import dst_note
from scheduler.domain.recurrence.moment import read_moment
from scheduler.domain.recurrence.planner import Adjustments, PlannedOccurrence, Planner, SkippedOccurrence
from scheduler.domain.recurrence.resolve import RUN_NOW, dtstart_zone
from scheduler.domain.recurrence.resolve_fields import resolve_fields
from scheduler.domain.recurrence.rfc5545_stamp import Fault
from scheduler.domain.recurrence.rrule_text import SyntaxFaults, read_text
from scheduler.domain.recurrence.schedule import Schedule
from scheduler.domain.recurrence.spec import Spec, compile_schedule
from scheduler.domain.recurrence.zones import clock, local_time, zone, zone_names
from scheduler.domain.schedule_fields import SCHEDULE_FIELDS
from scheduler.domain.tenants import TENANT_PATTERN

USUAL_COUNT = 10
MOST = 1000
MAX_SKIPPED = 100
_MICRO = timedelta(microseconds=1)
_FAR = datetime(9999, 12, 31, tzinfo=UTC)
_TEXTS = ("run_at", "rrule", "cron", "timezone", "after", "tenant", "id")
FIELDS = (*SCHEDULE_FIELDS, "manual", "tenant", "id", "after", "count")


@dataclass(frozen=True, slots=True)
class Item:
    """An occurrence as text; `nominal_at` and `moved` only if it was moved."""

    local: str
    utc: str
    note: str
    nominal_at: str | None = None
    moved: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return a JSON object."""
        values: dict[str, Any] = {"local": self.local, "utc": self.utc, "note": self.note}
        if self.nominal_at is not None:
            values |= {"nominal_at": self.nominal_at, "moved": list(self.moved)}
        return values


@dataclass(frozen=True, slots=True)
class Skipped:
    """A skipped occurrence as text."""

    nominal_at: str
    reason: str
    note: str

    def fields(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"nominal_at": self.nominal_at, "reason": self.reason, "note": self.note}


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The occurrences of a schedule with a calendar, a window or jitter."""

    planner: Planner
    jitter_known: bool
    occurrences: tuple[PlannedOccurrence, ...]
    skipped: tuple[SkippedOccurrence, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """A schedule and the requested occurrences."""

    spec: Spec
    schedule: Schedule
    occurrences: tuple[datetime, ...]
    adjusted: Adjusted | None = None

    @property
    def items(self) -> list[Item]:
        """Return the occurrences as text."""
        adjusted = self.adjusted
        if adjusted is None:
            return [Item(self._local(instant), utc_text(instant), dst_note(self.schedule, instant))
                    for instant in self.occurrences]
        return [self._item(adjusted, occurrence) for occurrence in adjusted.occurrences]

    @property
    def skipped(self) -> list[Skipped] | None:
        """Return the skipped occurrences as text; None without a calendar, a window or jitter."""
        adjusted = self.adjusted
        if adjusted is None:
            return None
        return [
            Skipped(utc_text(skip.nominal_at), str(skip.reason), skip_note(adjusted.planner, skip))
            for skip in adjusted.skipped
        ]

    def _item(self, adjusted: Adjusted, occurrence: PlannedOccurrence) -> Item:
        note = adjustment_note(adjusted.planner, occurrence, jitter_known=adjusted.jitter_known)
        nominal = utc_text(occurrence.nominal_at) if occurrence.moved else None
        due_at, moved = occurrence.due_at, tuple(map(str, occurrence.moved))
        return Item(self._local(due_at), utc_text(due_at), note, nominal, moved)

    def _local(self, instant: datetime) -> str:
        return local_time(instant, self.spec.timezone).isoformat()


def preview(
    fields: Mapping[str, object], now: datetime, usual_count: int = USUAL_COUNT, find: FindCalendar | None = None
) -> Preview:
    """Return the occurrences of a schedule. Raises Rejected with the problems of an equivalent request."""
    problems = _type_problems(fields)
    if problems:
        raise Rejected(problems)
    after, problem = _after(fields)
    stored_at = now if after is None or fields.get("run_at") == RUN_NOW else after
    adjustments: Adjustments | None = None
    try:
        adjustments = read_adjustments(fields, find)
    except Rejected as rejected:
        problem.extend(rejected.problems)
    try:
        spec = resolve_fields(fields, stored_at, keep_wall=adjustments is not None)
    except Rejected as rejected:
        raise Rejected((*rejected.problems, *problem)) from None
    if problem:
        raise Rejected(problem)
    count = usual_count if fields.get("count") is None else fields["count"]
    assert isinstance(count, int)  # noqa: S101 - checked by _mistyped
    schedule = compile_schedule(spec)
    if adjustments is not None:
        job_id = None if fields.get("id") is None else UUID(str(fields["id"]))
        planner = checked_planner(spec, adjustments, job_id)
        following = planner.all() if after is None else planner.after(after)
        since = schedule.starts_at - _MICRO if after is None else after
        return adjusted_preview(spec, planner, following, count, since, jitter_known=job_id is not None)
    instants: Iterator[datetime]
    if after is None:
        # With run_at, start at the first run even if it is in the past; without it the schedule starts now.
        first = schedule.first()
        instants = schedule.after(now) if first is None else chain([first], schedule.after(first))
    else:
        instants = schedule.after(after)
    return Preview(spec, schedule, tuple(islice(instants, count)))


def adjusted_preview(  # noqa: PLR0917 - a schedule, and the part of it
    spec: Spec, planner: Planner, following: Iterator[PlannedOccurrence], count: int, since: datetime,
    until: datetime | None = None, *, jitter_known: bool = True
) -> Preview:
    """Return the next occurrences, and those after `since` that are skipped up to the last one, or to `until`."""
    occurrences = tuple(islice(following, count))
    has_more = next(following, None) is not None
    if len(occurrences) == count:
        until = occurrences[-1].due_at
    skipped = planner.skipped(since, until or _FAR, MAX_SKIPPED)
    adjusted = Adjusted(planner, jitter_known, occurrences, tuple(skipped), has_more)
    due_times = tuple(occurrence.due_at for occurrence in occurrences)
    return Preview(spec, planner.schedule, due_times, adjusted)


def _type_problems(fields: Mapping[str, object]) -> list[Problem]:
    unknown = [name for name in fields if name not in FIELDS]
    problem = f"is not a field of a preview; the fields are {', '.join(FIELDS)}"
    problems = [Problem(name[:200], problem) for name in unknown]
    mistyped = [name for name in _TEXTS if not isinstance(fields.get(name), str | None)]
    problems.extend(Problem(name, "must be a string") for name in mistyped)
    every, count = fields.get("every"), fields.get("count")
    if isinstance(every, bool) or not isinstance(every, str | int | float | None):
        problems.append(Problem("every", "must be an ISO 8601 duration or a number of seconds"))
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST):
        problems.append(Problem("count", f"must be a whole number from 1 to {MOST}"))
    if not isinstance(fields.get("manual"), bool | None):
        problems.append(Problem("manual", "must be true or false"))
    tenant, job_id = fields.get("tenant"), fields.get("id")
    if isinstance(tenant, str) and not re.fullmatch(TENANT_PATTERN, tenant):
        problems.append(Problem("tenant", "takes 1 to 100 characters from A-Z, a-z, 0-9, '.', '_' and '-'"))
    if isinstance(job_id, str) and not _is_uuid(job_id):
        problems.append(Problem("id", "must be a UUID"))
    return problems


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _after(fields: Mapping[str, object]) -> tuple[datetime | None, list[Problem]]:
    """Return the instant of `after`; without an offset it is wall time in the schedule's zone."""
    text = fields.get("after")
    if text is None:
        return None, []
    try:
        moment = read_moment(str(text))
        if moment.offset is not None:
            return moment.instant(), []
        local = clock(moment.zone or _zone_name(fields))
        wall = moment.wall.replace(tzinfo=UTC)
        offset = moment.wall.replace(tzinfo=zone(local.name)).utcoffset() or timedelta()
        return wall - offset, []
    except Fault as fault:
        return None, [Problem("after", str(fault))]
    except OverflowError:
        return None, [Problem("after", "is outside the years 1 to 9999")]


def _zone_name(fields: Mapping[str, object]) -> str:
    """Return the schedule's zone; `resolve` reports an invalid one."""
    name = fields.get("timezone")
    if name is None and isinstance(run_at := fields.get("run_at"), str) and run_at.endswith("]"):
        with suppress(Fault):
            name = read_moment(run_at).zone
    try:
        text = read_text(str(fields["rrule"])) if fields.get("rrule") is not None else None
    except SyntaxFaults:
        text = None
    if text is not None and text.dtstart is not None:
        name = dtstart_zone(text.dtstart, None if name is None else str(name))
    return str(name) if name in zone_names() else "UTC"


def utc_text(instant: datetime) -> str:
    """Format an instant in UTC, with a fraction only if there is one."""
    return instant.replace(tzinfo=None).isoformat() + "Z"
