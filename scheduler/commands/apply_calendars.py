"""Apply commands for calendars in a transaction."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.domain.calendars import (
    CalendarKey,
    CalendarOutcome,
    StoredCalendar,
    content_fields,
    delete_calendar,
    store_calendar,
)
from scheduler.domain.caller import UNVERIFIED_CALLER, Caller
from scheduler.domain.errors import Rejected, SchedulerError
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleCalendar
from scheduler.postgres import audit, calendars
from scheduler.postgres.audit import AuditEntry
from scheduler.postgres.calendars import CalendarFilter, CalendarRow
from scheduler.postgres.connection import Connection, Cursor, database_time, transaction

MAX_AUDITED = 100  # changed dates of each kind in an audit entry


class NoSuchCalendar(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """The owner has no calendar with this name."""


class CalendarInUse(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """Pending or paused jobs use the calendar."""

    def __init__(self, jobs: int) -> None:
        super().__init__(f"{jobs:,} pending or paused jobs use the calendar")


def apply_calendars(cursor: Cursor, batch: Sequence[Incoming]) -> list[CalendarOutcome | Rejected]:
    """Apply the commands in order; their names are locked."""
    now = database_time(cursor)
    stored: dict[CalendarKey, StoredCalendar | None] = {}
    stored |= calendars.find_stored(cursor, map(_key, batch))
    outcomes: list[CalendarOutcome | Rejected] = []
    for incoming in batch:
        command = incoming.command
        assert isinstance(command, ScheduleCalendar)  # noqa: S101 - the caller's choice
        key = _key(incoming)
        try:
            outcome = store_calendar(stored.get(key), command, incoming.tenant, now)
        except Rejected as rejected:
            outcomes.append(rejected.without_traceback())
            continue
        stored[key] = outcome.calendar
        _save(cursor, outcome, incoming.caller or UNVERIFIED_CALLER)
        outcomes.append(outcome)
    return outcomes


def store_one(connection: Connection, incoming: Incoming) -> tuple[CalendarOutcome, CalendarRow]:
    """Apply an operator's command; return the outcome and the calendar. Raises Rejected."""
    key = _key(incoming)
    with transaction(connection) as cursor:
        calendars.lock_names(cursor, [key.name], ())
        [outcome] = apply_calendars(cursor, [incoming])
        if isinstance(outcome, Rejected):
            raise outcome
        return outcome, _find(cursor, key)


def delete_one(connection: Connection, key: CalendarKey, caller: Caller) -> CalendarRow:
    """Delete a calendar and return it. Raises NoSuchCalendar or CalendarInUse."""
    with transaction(connection) as cursor:
        calendars.lock_names(cursor, [key.name], ())
        stored = calendars.find_stored(cursor, [key]).get(key)
        if stored is None or stored.content is None:
            raise NoSuchCalendar
        row = _find(cursor, key)
        if row.jobs:
            raise CalendarInUse(row.jobs)
        deleted = delete_calendar(stored, database_time(cursor))
        calendars.save_calendar(cursor, deleted, caller.who, changed=True)
        entry = AuditEntry(caller, "delete", "calendar", key.name, key.tenant, _audited(stored, None)[0])
        audit.write_entries(cursor, [entry])
    return row


def _find(cursor: Cursor, key: CalendarKey) -> CalendarRow:
    row = calendars.find_with(cursor, CalendarFilter(owner=key.tenant, name=key.name))
    if row is None or row.tenant != key.tenant:
        raise NoSuchCalendar
    return row


def _key(incoming: Incoming) -> CalendarKey:
    command = incoming.command
    assert isinstance(command, ScheduleCalendar)  # noqa: S101 - the caller's choice
    return CalendarKey(command.name, incoming.tenant)


def _save(cursor: Cursor, outcome: CalendarOutcome, caller: Caller) -> None:
    calendar, before = outcome.calendar, outcome.before
    if calendar is before:
        return
    changed = outcome.status == "stored"
    calendars.save_calendar(cursor, calendar, caller.who, changed=changed)
    if changed:
        after, audited = _audited(calendar, before)
        audit.write_entries(cursor, [AuditEntry(
            caller, ScheduleCalendar.kind, "calendar", calendar.name, calendar.tenant, audited, after,
        )])


def _audited(calendar: StoredCalendar, other: StoredCalendar | None) -> tuple[str, str | None]:
    """Return the fields in which two versions differ as JSON, those of each version."""
    fields, others = _fields(calendar), _fields(other)
    before = None if other is None else _differing(other.version, others, fields)
    return _differing(calendar.version, fields, others), before


def _differing(version: int, fields: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """Return the version and the fields that differ from the others as JSON, with a limited number of dates."""
    values: dict[str, Any] = {"version": version}
    for name, value in fields.items():
        if value == others.get(name):
            continue
        if isinstance(value, Mapping):
            other_dates = (others.get(name) or {}).get
            dates = [day for day, text in value.items() if other_dates(day) != text]
            values[name] = {day: value[day] for day in dates[:MAX_AUDITED]}
            if len(dates) > MAX_AUDITED:
                values[f"{name}_omitted"] = len(dates) - MAX_AUDITED
        else:
            values[name] = value
    return json.dumps(values)


def _fields(calendar: StoredCalendar | None) -> dict[str, Any]:
    return {} if calendar is None or calendar.content is None else content_fields(calendar.content)
