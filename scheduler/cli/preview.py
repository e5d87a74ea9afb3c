"""`scheduler preview`: the next occurrences of a schedule."""

import argparse
import io
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scheduler.cli import times
from scheduler.cli.named_calendars import NamedCalendars
from scheduler.cli.terminal import coloured, styled
from scheduler.domain.calendar_file import STORED_FIELDS
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.recurrence import local_time
from scheduler.domain.recurrence.adjustment_fields import CALENDAR_FIELDS
from scheduler.domain.recurrence.preview import FIELDS, MOST, USUAL_COUNT, Preview, preview, utc_text
from scheduler.domain.strict_json import parse_object

USUAL_LINE_COUNT = 100  # programs can take more than the screenful of USUAL_COUNT
REFUSED = 65  # EX_DATAERR


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `scheduler preview`."""
    parser.description = "The next occurrences of a schedule, or the reasons why it is invalid."
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--rrule", metavar="TEXT", help="RFC 5545, such as 'FREQ=WEEKLY;BYDAY=MO,WE'")
    kind.add_argument("--cron", metavar="TEXT", help="five fields or @daily, such as '30 2 * * 1-5'")
    kind.add_argument("--every", metavar="TEXT", help="ISO 8601 duration or seconds, such as PT15M")
    parser.add_argument("--run-at", metavar="T", type=times.absolute,
                        help=f"the first run and the rule's DTSTART; {times.HELP}")
    parser.add_argument("--timezone", metavar="Z", help="IANA name (default: UTC)")
    parser.add_argument("--after", metavar="T", type=times.absolute,
                        help="only occurrences after this (default: all)")
    text = f"number of occurrences, 1 to {MOST} (default: {USUAL_COUNT})"
    parser.add_argument("--count", metavar="N", type=int, help=text)
    parser.add_argument("--calendar", metavar="NAME|@FILE", help="calendar name, or a JSON file")
    parser.add_argument("--on-closed", metavar="HOW", help="skip, next, previous, nearest or next_in_month")
    parser.add_argument("--window", metavar="HOURS", help="hours and days, such as 09:00-18:00,MO,TU")
    parser.add_argument("--jitter", metavar="SECONDS", type=float, help="maximum delay, 0 to 86400")
    parser.add_argument("--id", metavar="ID", help="job id, which determines the jitter")
    parser.add_argument("--tenant", metavar="T", help="owner of the job and of the calendar")
    parser.add_argument("--jsonl", action="store_true", help="read one JSON object per line from standard input")


def run(args: argparse.Namespace) -> int:
    """Print a table, or with --jsonl one line of JSON for each line read."""
    if args.jsonl:
        return _run_lines()
    options = {name: getattr(args, name, None) for name in FIELDS}
    given = {name: value for name, value in options.items() if value is not None}
    try:
        if not given.keys() & {"rrule", "cron", "every", "run_at"}:
            raise Rejected([Problem("rrule", "give --rrule, --cron or --every")])
        fields = given | _from_options(given)
        with NamedCalendars() as calendars:
            result = preview(fields, datetime.now(UTC), find=calendars.finder(fields))
    except Rejected as rejected:
        for problem in rejected.problems:
            print(f"{problem.field}: {problem.problem}", file=sys.stderr)
        return REFUSED
    print("\n".join(_table(result, colour=coloured())))
    return 0


def _from_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have another syntax on the command line."""
    fields: dict[str, Any] = {}
    if "window" in given:
        hours, *days = given["window"].split(",")
        opens, _, closes = hours.partition("-")
        fields["window"] = {"from": opens, "to": closes} | ({"days": days} if days else {})
    if given.get("calendar", "").startswith("@"):
        fields["calendar"] = _read_file(given["calendar"][1:])
    return fields


def _read_file(path: str) -> Any:
    try:
        calendar = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Rejected([Problem("calendar", f"cannot read {path}: {error.strerror}")]) from None
    except (ValueError, RecursionError) as error:
        raise Rejected([Problem("calendar", f"{path} is not JSON: {error}")]) from None
    if not isinstance(calendar, dict):
        fields = ", ".join(CALENDAR_FIELDS)
        raise Rejected([Problem("calendar", f"{path} must contain a JSON object with {fields}")])
    return {name: value for name, value in calendar.items() if name not in STORED_FIELDS}


def _run_lines() -> int:
    """Print one line of JSON for each line of standard input."""
    now = datetime.now(UTC)
    if isinstance(sys.stdin, io.TextIOWrapper):  # invalid UTF-8 affects one line only
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    with NamedCalendars() as calendars:
        for line in sys.stdin:
            if line.strip():
                print(json.dumps(_preview_line(line, now, calendars)), flush=True)
    return 0


def _preview_line(line: str, now: datetime, calendars: NamedCalendars) -> dict[str, object]:
    try:
        fields, _ = parse_object(line.encode("utf-8", "replace"), exact="")
        result = preview(fields, now, USUAL_LINE_COUNT, calendars.finder(fields))
    except Rejected as rejected:
        return {"errors": [{"field": "line" if p.field == "body" else p.field, "problem": p.problem}
                           for p in rejected.problems]}
    response: dict[str, object] = {"occurrences": [utc_text(instant) for instant in result.occurrences]}
    skipped = result.skipped
    if skipped is not None:
        response["items"] = [item.fields() for item in result.items]
        response["skipped"] = [occurrence.fields() for occurrence in skipped]
    return response


def _table(result: Preview, *, colour: bool) -> Iterable[str]:
    """Yield the lines of the table."""
    rows = [(f"local time ({result.spec.timezone})", "UTC", "")]
    for instant, item in zip(result.occurrences, result.items, strict=True):
        here = local_time(instant, result.spec.timezone)
        rows.append((f"{here:%a} {_wall(here)} {here:%Z}", item.utc, item.note))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for number, (local, utc, note) in enumerate(rows):
        styles = ("bold", "bold") if number == 0 else (None, "dim")
        cells = (local.ljust(widths[0]), utc.ljust(widths[1]) if note else utc)
        line = "  ".join(styled(cell, style, colour=colour) for cell, style in zip(cells, styles, strict=True))
        yield f"{line}  {styled(note, 'yellow', colour=colour)}" if note else line
    if not _has_more(result):
        yield styled("No further runs.", "dim", colour=colour)
    for skipped in result.skipped or ():
        yield f"{styled('Not emitted:', 'dim', colour=colour)} {skipped.nominal_at}  {skipped.note}"


def _has_more(result: Preview) -> bool:
    """Return whether more occurrences follow."""
    if result.adjusted is not None:
        return result.adjusted.has_more
    last = result.occurrences[-1] if result.occurrences else datetime.now(UTC)
    return result.schedule.next_after(last) is not None


def _wall(here: datetime) -> str:
    return here.replace(tzinfo=None).isoformat(" ")
