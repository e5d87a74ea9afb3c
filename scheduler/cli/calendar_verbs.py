"""`scheduler calendar list|show|import|delete`: functions that return an error text, an exit code, or None."""

import json
import sys
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scheduler.cli.terminal import plain
from scheduler.cli.verb_helpers import cli_caller, confirm, open_connection, table
from scheduler.commands.apply_calendars import CalendarInUse, NoSuchCalendar, delete_one, store_one
from scheduler.domain.calendar_file import MAX_BYTES, read_file
from scheduler.domain.calendars import CalendarKey, content_fields
from scheduler.domain.errors import Rejected
from scheduler.domain.icalendar import InvalidFile
from scheduler.domain.message_parser import parse_command
from scheduler.postgres.calendars import CalendarFilter, find_calendar, list_calendars
from scheduler.postgres.connection import Connection
from scheduler.settings import Settings
from scheduler.views.calendars import CalendarView, calendar_view

EX_DATAERR = 65
_HEAD = ("CALENDAR", "OWNER", "VERSION", "CLOSED", "OPEN", "WEEKEND", "VALID UNTIL", "JOBS")


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print the calendars that a tenant can use."""
    with open_connection(settings, "calendar list") as connection:
        wanted = CalendarFilter(owner=args.tenant)
        views: Any = [calendar_view(row) for row in list_calendars(connection, wanted, args.limit)]
    if args.json:
        print(json.dumps([view.model_dump(mode="json") for view in views]))
        return
    rows = [
        (view.name, view.tenant, str(view.version), str(len(view.closed)), str(len(view.open)),
         ",".join(view.weekend), view.valid_until or "", str(view.jobs)) for view in views
    ]
    print("\n".join(table(_HEAD, rows)) if views else "No calendars.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one calendar with its dates."""
    with open_connection(settings, "calendar show") as connection:
        row = find_calendar(connection, CalendarFilter(owner=args.tenant, name=args.name))
    if row is None:
        return _missing(args)
    view = calendar_view(row)
    if args.json:
        print(view.model_dump_json())
        return None
    for name, value in view.model_dump(mode="json", exclude={"closed", "open"}, exclude_none=True).items():
        print(f"{name:<12} {plain(str(','.join(value) if name == 'weekend' else value))}")
    for title, dates in (("closed", view.closed), ("open", view.open)):
        print(f"\n{title}")
        print("\n".join(f"{day}  {plain(name)}" for day, name in dates.items()) or "none")
    return None


def import_(settings: Settings, args: Namespace) -> str | int | None:
    """Replace a calendar from a file."""
    try:
        body = _read(args.file)
    except OSError as error:
        return f"cannot read {args.file}: {error.strerror}"
    try:
        read = read_file(body, datetime.now(UTC).year)
    except InvalidFile as error:
        print(f"scheduler: {args.file}: {error}", file=sys.stderr)
        return EX_DATAERR
    fields = dict(read.fields)
    if args.weekend is not None:
        fields["weekend"] = args.weekend
    if args.valid_until is not None:
        fields["valid_until"] = args.valid_until.isoformat()
    with open_connection(settings, "calendar import") as connection:
        if read.is_icalendar:
            fields = _stored(connection, args) | fields
        try:
            incoming = parse_command("calendar", json.dumps(fields).encode(), max_payload_bytes=MAX_BYTES,
                                     fixed_fields={"name": args.name, "tenant": args.tenant})
            incoming.caller = cli_caller()
            outcome, row = store_one(connection, incoming)
        except Rejected as rejected:
            print(f"scheduler: {args.file}: line 1: {rejected}", file=sys.stderr)
            return EX_DATAERR
    for note in read.notes:
        print(note, file=sys.stderr)
    view = calendar_view(row)
    print(view.model_dump_json() if args.json else _summary(view, outcome.status))
    return None


def delete(settings: Settings, args: Namespace) -> str | None:
    """Delete a calendar that no pending or paused job uses."""
    if problem := confirm(f"delete {args.name}", yes=args.yes):
        return problem
    try:
        with open_connection(settings, "calendar delete") as connection:
            row = delete_one(connection, CalendarKey(args.name, args.tenant), cli_caller())
    except NoSuchCalendar:
        return _missing(args)
    except CalendarInUse as used:
        return str(used)
    print(calendar_view(row).model_dump_json() if args.json else "deleted")
    return None


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with Path(path).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _stored(connection: Connection, args: Namespace) -> dict[str, Any]:
    """Return the fields that an iCalendar file does not have."""
    row = find_calendar(connection, CalendarFilter(owner=args.tenant, name=args.name))
    connection.rollback()
    if row is None or row.tenant != args.tenant:
        return {}
    fields = content_fields(row.content)
    return {name: fields[name] for name in ("weekend", "open")}


def _summary(view: CalendarView, status: str) -> str:
    until = "" if view.valid_until is None else f", valid until {view.valid_until}"
    days = f"{len(view.closed):,} closed and {len(view.open):,} open days"
    return f"{status}: version {view.version}, {days}{until}; {view.jobs:,} jobs use it"


def _missing(args: Namespace) -> str:
    return f"there is no calendar {args.name} of {args.tenant}"
