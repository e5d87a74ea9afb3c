"""`scheduler preview`: the next occurrences of a schedule, before anyone relies on it."""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.recurrence import Schedule, Spec, compile_schedule, local_time, resolve, zone
from scheduler.domain.recurrence.moment import read_moment
from scheduler.domain.recurrence.notes import note
from scheduler.domain.recurrence.resolve import dtstart_zone
from scheduler.domain.recurrence.stamp import Fault
from scheduler.domain.recurrence.text import Faulty, read_text
from scheduler.domain.recurrence.zones import clock, zone_names

USUAL_COUNT, USUAL_LINE_COUNT = 10, 100  # a screenful for people; programs cut for themselves
MOST = 1000
REFUSED = 65  # EX_DATAERR
_MICRO = timedelta(microseconds=1)
_TEXTS = ("run_at", "rrule", "cron", "timezone", "after")
_FIELDS = (*_TEXTS, "every", "count")
_BOLD, _DIM, _YELLOW, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Preview:
    """A schedule and the occurrences that were asked for."""

    spec: Spec
    schedule: Schedule
    occurrences: tuple[datetime, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `scheduler preview`."""
    parser.description = "Show when a schedule would run. Rules that would be rejected are explained."
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--rrule", metavar="TEXT", help="RFC 5545, such as 'FREQ=WEEKLY;BYDAY=MO,WE'")
    kind.add_argument("--cron", metavar="TEXT", help="five fields or @daily, such as '30 2 * * 1-5'")
    kind.add_argument("--every", metavar="TEXT", help="ISO 8601 duration or seconds, such as PT15M")
    parser.add_argument("--run-at", metavar="T", help="RFC 3339: the first run and the rule's DTSTART")
    parser.add_argument("--timezone", metavar="Z", help="IANA name (default: UTC)")
    parser.add_argument("--after", metavar="T", help="only what comes after this (default: from the first run)")
    parser.add_argument("--count", metavar="N", type=int, help=f"how many, 1 to {MOST} (default: {USUAL_COUNT})")
    parser.add_argument("--jsonl", action="store_true", help="read one JSON object a line on standard input")


def run(args: argparse.Namespace) -> int:
    """Print a table, or with --jsonl one line of JSON for each line read."""
    if args.jsonl:
        return _run_lines()
    given = {name: getattr(args, name) for name in _FIELDS if getattr(args, name) is not None}
    try:
        if not given.keys() & {"rrule", "cron", "every", "run_at"}:
            raise Rejected([Problem("rrule", "give --rrule, --cron or --every")])
        found = preview(given, datetime.now(UTC))
    except Rejected as rejected:
        for problem in rejected.problems:
            print(f"{problem.field}: {problem.problem}", file=sys.stderr)
        return REFUSED
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    print("\n".join(_table(found, colour=colour)))
    return 0


def preview(fields: Mapping[str, object], now: datetime, usual_count: int = USUAL_COUNT) -> Preview:
    """Return the occurrences of a schedule; raise Rejected with the words that a command would get."""
    problems = _mistyped(fields)
    if problems:
        raise Rejected(problems)
    after, problem = _after(fields)
    stored_at = now if after is None else after
    names = ("run_at", "rrule", "cron", "every", "timezone")
    try:
        spec = resolve(**{name: fields.get(name) for name in names}, stored_at=stored_at)  # type: ignore[arg-type]
    except Rejected as rejected:
        raise Rejected((*rejected.problems, *problem)) from None
    if problem:
        raise Rejected(problem)
    schedule = compile_schedule(spec)
    if after is None:
        # With run_at the first run is shown, however long ago; without it the schedule starts now.
        first = schedule.first()
        after = now if first is None else first - _MICRO
    count = usual_count if fields.get("count") is None else fields["count"]
    assert isinstance(count, int)  # noqa: S101 - checked by _mistyped
    return Preview(spec, schedule, tuple(islice(schedule.after(after), count)))


def _mistyped(fields: Mapping[str, object]) -> list[Problem]:
    unknown = [name for name in fields if name not in _FIELDS]
    known = ", ".join(_FIELDS)
    problems = [Problem(name[:200], f"is not a field of a preview; the fields are {known}") for name in unknown]
    texts = [name for name in _TEXTS if not isinstance(fields.get(name), str | None)]
    problems.extend(Problem(name, "must be a string") for name in texts)
    every, count = fields.get("every"), fields.get("count")
    if isinstance(every, bool) or not isinstance(every, str | int | float | None):
        problems.append(Problem("every", "must be an ISO 8601 duration or a number of seconds"))
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST):
        problems.append(Problem("count", f"must be a whole number from 1 to {MOST}"))
    return problems


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
        shown = moment.wall.replace(tzinfo=zone(local.name)).utcoffset() or timedelta()
        return wall - shown, []
    except Fault as fault:
        return None, [Problem("after", str(fault))]
    except OverflowError:
        return None, [Problem("after", "lies outside the years 1 to 9999")]


def _zone_name(fields: Mapping[str, object]) -> str:
    """Return the zone that the schedule will follow; a wrong one is resolve's to report."""
    name = fields.get("timezone")
    if name is None and isinstance(run_at := fields.get("run_at"), str) and run_at.endswith("]"):
        with suppress(Fault):
            name = read_moment(run_at).zone
    try:
        text = read_text(str(fields["rrule"])) if fields.get("rrule") is not None else None
    except Faulty:
        text = None
    if text is not None and text.dtstart is not None:
        name = dtstart_zone(text.dtstart, None if name is None else str(name))
    return str(name) if name in zone_names() else "UTC"


def _run_lines() -> int:
    """Answer each line of standard input with one line."""
    now = datetime.now(UTC)
    if isinstance(sys.stdin, io.TextIOWrapper):  # bytes that are no UTF-8 spoil their own line only
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(_answer(line, now)), flush=True)
    return 0


def _answer(line: str, now: datetime) -> dict[str, object]:
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise Rejected([Problem("line", "must be a JSON object")])
        found = preview(fields, now, USUAL_LINE_COUNT)
    except (ValueError, RecursionError) as error:
        return {"errors": [{"field": "line", "problem": f"is not JSON: {error}"}]}
    except Rejected as rejected:
        return {"errors": [{"field": p.field, "problem": p.problem} for p in rejected.problems]}
    return {"occurrences": [_rfc3339(instant) for instant in found.occurrences]}


def _rfc3339(instant: datetime) -> str:
    """Write an instant in UTC, with a fraction only where there is one."""
    return instant.replace(tzinfo=None).isoformat() + "Z"


def _table(found: Preview, *, colour: bool) -> Iterable[str]:
    """Yield the lines of the table."""
    rows = [(f"local time ({found.spec.timezone})", "UTC", "")]
    for instant in found.occurrences:
        here = local_time(instant, found.spec.timezone)
        rows.append((f"{here:%a} {_wall(here)} {here:%Z}", _rfc3339(instant), note(found.schedule, instant)))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for number, (shown, utc, remark) in enumerate(rows):
        styles = (_BOLD, _BOLD) if number == 0 else ("", _DIM)
        cells = (shown.ljust(widths[0]), utc.ljust(widths[1]) if remark else utc)
        line = "  ".join(_paint(cell, style, colour=colour) for cell, style in zip(cells, styles, strict=True))
        yield f"{line}  {_paint(remark, _YELLOW, colour=colour)}" if remark else line
    if found.schedule.next_after(found.occurrences[-1] if found.occurrences else datetime.now(UTC)) is None:
        yield _paint("No further runs.", _DIM, colour=colour)


def _wall(here: datetime) -> str:
    return here.replace(tzinfo=None).isoformat(" ")


def _paint(text: str, style: str, *, colour: bool) -> str:
    return f"{style}{text}{_PLAIN}" if colour and style and text else text
