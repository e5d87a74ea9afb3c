"""Arguments of `scheduler job`, `run`, `dead`, `delayed` and `token`."""

import argparse
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from scheduler.cli import job_request_arguments
from scheduler.cli.id_prefixes import LEAST, id_of
from scheduler.cli.times import HELP as TIME_HELP
from scheduler.cli.times import UNITS, instant
from scheduler.domain.jobs.job import VISIBLE_STATUSES
from scheduler.domain.messages import JOB_VERBS, Priority
from scheduler.domain.recurrence.window import WEEKDAYS
from scheduler.domain.runs.run import RunStatus
from scheduler.domain.tenants import (
    CALENDAR_NAME_PATTERN,
    DEFAULT_TENANT,
    OWNER_PATTERN,
    TENANT_PATTERN,
)

MAX_LISTED = 10_000
MAX_TOKEN = timedelta(days=366)

_RUN_STATUSES = tuple(status.value for status in RunStatus if status is not RunStatus.EXPECTED)
_ROLES = ("viewer", "operator", "admin")
_YES = "skip the confirmation"
_ONE = "print one JSON object"
_PREFIX = f", or its first {LEAST} characters or more"

Add = Callable[[str, str], argparse.ArgumentParser]


def add(commands: Any, run: Callable[[argparse.Namespace], int]) -> None:
    """Declare the commands; `run` gets the module and the name of the verb."""
    for name, module, text, declare in (
        ("job", "job_verbs", f"Jobs: list, show, create, edit, {', '.join(JOB_VERBS)}.", _job),
        ("run", "run_verbs", "Runs of jobs: list, show, retry, cancel, export.", _run),
        ("dead", "dead_verbs", "Dead letters in scheduler_dead: list, show, replay, drop.", _dead),
        ("delayed", "delayed_verbs",
         "Delayed messages: list, show, cancel; migration from the delayed-message plugin.", _delayed),
        ("calendar", "calendar_verbs", "Business calendars: list, show, import, delete.", _calendar),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        verbs = parser.add_subparsers(required=True, metavar="VERB")

        def add_verb(verb: str, text: str, verbs: Any = verbs, module: str = module) -> argparse.ArgumentParser:
            added: argparse.ArgumentParser = verbs.add_parser(verb, help=text, description=text)
            added.set_defaults(command=run, module=f"scheduler.cli.{module}", verb=verb, function=verb)
            return added

        declare(add_verb)
    text = "A token for the API, signed with the secret in SCHEDULER_JWT_KEY."
    token = commands.add_parser("token", help=text, description=text)
    token.set_defaults(command=run, module="scheduler.cli.token_verb", verb="make", function="make", extra="api")
    token.add_argument("--role", choices=_ROLES, required=True, metavar="R", help=f"one of {', '.join(_ROLES)}")
    token.add_argument("--tenant", type=lambda text: None if text == "*" else _tenant(text), metavar="T",
                       help="tenant (default, or *: all)")
    token.add_argument("--for", dest="lasts", type=_span, default=timedelta(hours=8), metavar="8h",
                       help="lifetime, such as 90s, 30m, 8h, 7d (default: 8h)")
    token.add_argument("--sub", metavar="WHO", help="subject, for the audit log (default: your user name)")
    token.add_argument("--json", action="store_true", help=_ONE)


def _job(add_verb: Add) -> None:
    listed = add_verb("list", "Jobs, newest first.")
    _job_filters(listed)
    _listing(listed)
    show = add_verb("show", "One job: its state, and why its last event was late.")
    show.add_argument("id", type=id_of("job"), metavar="ID", help=f"job id{_PREFIX}")
    show.add_argument("--json", action="store_true", help="print the stored values as one JSON object")
    job_request_arguments.declare(add_verb)
    for verb, model in JOB_VERBS.items():
        confirmed = ", after confirmation" if model.permanent else ""
        which = ": one by id, or all that match the filters." if model.changes else "."
        added = add_verb(verb, f"{model.help}{confirmed}{which}")
        added.set_defaults(function="apply")
        added.add_argument("id", type=id_of("job"), nargs="?" if model.changes else None, metavar="ID",
                           help=f"job id{_PREFIX}")
        if model.changes:
            _job_filters(added)
        added.add_argument("--json", action="store_true", help=_ONE)
        if model.permanent:
            added.add_argument("--yes", action="store_true", help=_YES)


def _run(add_verb: Add) -> None:
    listed = add_verb("list", "Open and finished runs, latest due first.")
    _run_filters(listed)
    _listing(listed)
    show = add_verb("show", "One run: its state, next step and attempts.")
    _event(show)
    show.add_argument("--json", action="store_true", help=_ONE)
    retry = add_verb("retry", "Retry dead or cancelled runs now: one by event id, or all that match the filters.")
    _event(retry, nargs="?")
    _run_filters(retry)
    retry.add_argument("--json", action="store_true", help=_ONE)
    cancel = add_verb("cancel", "Cancel one open run; work in progress is not interrupted. `run retry` undoes it.")
    _event(cancel)
    cancel.add_argument("--json", action="store_true", help=_ONE)
    cancel.add_argument("--yes", action="store_true", help="no effect: this command needs no confirmation")
    export = add_verb("export", "Finished runs as JSON lines, oldest first.")
    text = f"finished at or after T; {TIME_HELP}"
    export.add_argument("--since", type=instant, metavar="T", required=True, help=text)
    export.add_argument("--until", type=instant, metavar="T", required=True, help="finished before T")
    export.add_argument("--directory", metavar="DIR", help="write a file per UTC day there; complete ones stay")
    export.add_argument("--gzip", action="store_true", help="compress the files")
    export.add_argument("--json", action="store_true", help="names of files as JSON; runs always are")


def _dead(add_verb: Add) -> None:
    listed = add_verb("list", "Dead letters, oldest first.")
    _listing(listed)
    show = add_verb("show", "One dead letter with its headers, properties and body.")
    replay = add_verb("replay",
                      "Replay one dead letter to its exchange, or retry its run if it is a dead run's event.")
    drop = add_verb("drop", "Delete one dead letter, after confirmation.")
    drop.add_argument("--yes", action="store_true", help=_YES)
    for verb in (show, replay, drop):
        verb.add_argument("--json", action="store_true", help=_ONE)
        verb.add_argument("id", type=id_of("dead"), metavar="ID", help=f"id from `dead list`{_PREFIX}")


def _delayed(add_verb: Add) -> None:
    listed = add_verb("list", "Pending delayed messages, next due first.")
    listed.add_argument("--routing-key", metavar="KEY", help="routing key")
    listed.add_argument("--since", type=instant, metavar="T", help=f"due at or after T; {TIME_HELP}")
    _listing(listed)
    show = add_verb("show", "One delayed message with its properties, headers and body.")
    cancel = add_verb("cancel", "Cancel one delayed message, after confirmation.")
    cancel.add_argument("--yes", action="store_true", help=_YES)
    for verb in (show, cancel):
        verb.add_argument("--json", action="store_true", help=_ONE)
        text = f"message_id if it is a UUID{_PREFIX}; otherwise the number from `delayed list`"
        verb.add_argument("id", type=id_of("delayed"), metavar="ID", help=text)
    moved = add_verb("migrate", "Replacements for the plugin's exchanges, from a broker's definitions.")
    moved.add_argument("definitions", type=Path, metavar="DEFINITIONS.json",
                       help="output of `rabbitmqctl export_definitions`")
    moved.add_argument("--apply", action="store_true", help="declare them in the virtual host of AMQP_URL")
    moved.add_argument("--vhost", metavar="NAME", help="virtual host in the definitions")
    moved.add_argument("--suffix", default="", metavar="TEXT",
                       help="suffix for the new names, to run both while the plugin is enabled")
    moved.add_argument("--json", action="store_true", help=_ONE)


def _calendar(add_verb: Add) -> None:
    listed = add_verb("list", "The calendars that a tenant can use, by name.")
    _listing(listed)
    show = add_verb("show", "One calendar with its dates.")
    imported = add_verb("import", "Replace a calendar from an iCalendar or JSON file.")
    imported.set_defaults(function="import_")
    deleted = add_verb("delete", "Delete a calendar that no pending or paused job uses, after confirmation.")
    deleted.add_argument("--yes", action="store_true", help=_YES)
    for verb in (show, imported, deleted):
        verb.add_argument("name", type=_calendar_name, metavar="NAME", help="calendar name")
        verb.add_argument("--json", action="store_true", help=_ONE)
    for verb in (listed, show, imported, deleted):
        verb.add_argument("--tenant", type=_owner, default=DEFAULT_TENANT, metavar="T",
                          help="owner; `*` for all tenants (default: default)")
    imported.add_argument("file", metavar="FILE", help="iCalendar or JSON; - for standard input")
    imported.add_argument("--weekend", type=_weekdays, metavar="DAYS", help="closed weekdays, such as SA,SU")
    imported.add_argument("--valid-until", type=_date, metavar="DATE",
                          help="last date on which the listed days count (default: end of the last year)")


def _job_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=VISIBLE_STATUSES, metavar="S",
                        help=f"one of {', '.join(VISIBLE_STATUSES)}")
    parser.add_argument("--job-type", metavar="T", help="job type")
    parser.add_argument("--tenant", metavar="T", help="tenant")
    priorities = [priority.value for priority in Priority]
    parser.add_argument("--priority", choices=priorities, metavar="P", help=f"one of {', '.join(priorities)}")
    parser.add_argument("--q", metavar="TEXT", help="id, name or type prefix")


def _run_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=_RUN_STATUSES, metavar="S", help=f"one of {', '.join(_RUN_STATUSES)}")
    parser.add_argument("--job", type=id_of("job"), metavar="ID", help=f"job id{_PREFIX}")
    parser.add_argument("--job-type", metavar="T", help="job type")
    parser.add_argument("--tenant", metavar="T", help="tenant")
    parser.add_argument("--since", type=instant, metavar="T", help=f"due at or after T; {TIME_HELP}")
    parser.add_argument("--until", type=instant, metavar="T", help="due before T")


def _listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_count, default=50, metavar="N", help="maximum rows (default: 50)")
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def _event(parser: argparse.ArgumentParser, **how: Any) -> None:
    parser.add_argument("event_id", type=id_of("run"), metavar="EVENT_ID",
                        help=f"event id, the same for every attempt{_PREFIX}", **how)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LISTED:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MAX_LISTED}")
    return int(text)


def _span(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    span = timedelta(seconds=int(match[1]) * UNITS[match[2]]) if match else timedelta()
    if not timedelta() < span <= MAX_TOKEN:
        raise argparse.ArgumentTypeError("must be a time such as 90s, 30m, 8h or 7d, up to a year")
    return span


def _weekdays(text: str) -> list[str]:
    days = [day.strip().upper() for day in text.split(",") if day.strip()]
    if unknown := [day for day in days if day not in WEEKDAYS]:
        raise argparse.ArgumentTypeError(f"{unknown[0][:20]!r} is not one of {', '.join(WEEKDAYS)}")
    return days


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a date such as 2026-12-31") from None


def _calendar_name(text: str) -> str:
    if not re.fullmatch(CALENDAR_NAME_PATTERN, text):
        raise argparse.ArgumentTypeError("must be 1 to 100 of A-Z a-z 0-9 . _ -")
    return text


def _owner(text: str) -> str:
    if not re.fullmatch(OWNER_PATTERN, text):
        raise argparse.ArgumentTypeError("must be 1 to 100 of A-Z a-z 0-9 . _ -, or *")
    return text


def _tenant(text: str) -> str:
    if not re.fullmatch(TENANT_PATTERN, text):
        raise argparse.ArgumentTypeError("must be 1 to 100 of A-Z a-z 0-9 . _ -")
    return text
