"""What `scheduler job`, `run`, `dead`, `delayed` and `token` take on the command line."""

import argparse
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from scheduler.domain.instants import parse_instant
from scheduler.domain.jobs.job import VISIBLE_STATUSES
from scheduler.domain.messages import Priority
from scheduler.domain.runs.run import RunStatus
from scheduler.domain.tenants import TENANT_PATTERN

MOST_LISTED = 10_000
LONGEST_TOKEN = timedelta(days=366)

_RUN_STATUSES = tuple(each.value for each in RunStatus if each is not RunStatus.EXPECTED)
_ROLES = ("viewer", "operator", "admin")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_YES = "do not ask"
_ONE = "print one JSON object"

Add = Callable[[str, str], argparse.ArgumentParser]


def add(commands: Any, run: Callable[[argparse.Namespace], int]) -> None:
    """Declare the commands; each verb has `run` called with its module and its name."""
    for name, module, text, declare in (
        ("job", "job_verbs", "What the database knows of jobs, and what can be done with them.", _job),
        ("run", "run_verbs",
         "What became of the occurrences of tracked jobs, and another chance for those given up.", _run),
        ("dead", "dead_verbs", "What lies in scheduler_dead and why: look, send again, drop.", _dead),
        ("delayed", "delayed_verbs",
         "Messages that wait to come out, and the way from the delayed-message plugin.", _delayed),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        verbs = parser.add_subparsers(required=True, metavar="VERB")

        def add_verb(verb: str, text: str, verbs: Any = verbs, module: str = module) -> argparse.ArgumentParser:
            added: argparse.ArgumentParser = verbs.add_parser(verb, help=text, description=text)
            added.set_defaults(command=run, module=f"scheduler.cli.{module}", verb=verb)
            return added

        declare(add_verb)
    text = "Print a token for the API, where SCHEDULER_JWT_KEY is a secret."
    token = commands.add_parser("token", help=text, description=text)
    token.set_defaults(command=run, module="scheduler.cli.token_verb", verb="make")
    token.add_argument("--role", choices=_ROLES, required=True, metavar="R", help=f"one of {', '.join(_ROLES)}")
    token.add_argument("--tenant", type=lambda text: None if text == "*" else _tenant(text), metavar="T",
                       help="for this tenant only (default, or *: all)")
    token.add_argument("--for", dest="lasts", type=_span, default=timedelta(hours=8), metavar="8h",
                       help="how long it is good, such as 90s, 30m, 8h, 7d (default: 8h)")
    token.add_argument("--sub", metavar="WHO", help="whose it is, as the audit tells it (default: you)")
    token.add_argument("--json", action="store_true", help=_ONE)


def _job(add_verb: Add) -> None:
    listed = add_verb("list", "Jobs, newest first.")
    _job_filters(listed)
    _listing(listed)
    show = add_verb("show", "Where a job stands, and why its last event was late; from the database alone.")
    show.add_argument("id", type=UUID, metavar="ID", help="the job's id, as its request has it")
    show.add_argument("--json", action="store_true", help="print the stored values as one JSON object")
    for verb, text in (
        ("pause", "Have jobs emit nothing until they are resumed."),
        ("resume", "Have paused jobs go on."),
        ("trigger", "Have a job emit one extra occurrence now."),
        ("cancel", "Cancel jobs for good; asks first."),
    ):
        which = "" if verb == "trigger" else " One by its id, or all that match the filters."
        added = add_verb(verb, text + which)
        added.add_argument("id", type=UUID, nargs=None if verb == "trigger" else "?", metavar="ID")
        if verb != "trigger":
            _job_filters(added)
        added.add_argument("--json", action="store_true", help=_ONE)
        if verb == "cancel":
            added.add_argument("--yes", action="store_true", help=_YES)


def _run(add_verb: Add) -> None:
    listed = add_verb("list", "Runs, open and finished, those that were due last first.")
    _run_filters(listed)
    _listing(listed)
    show = add_verb("show", "Where one run stands and why, what comes next, and how its attempts went.")
    _event(show)
    show.add_argument("--json", action="store_true", help=_ONE)
    retry = add_verb("retry", "Give a run that was given up or cancelled a fresh set of attempts, at once; "
                              "one by its event, or all that match the filters.")
    _event(retry, nargs="?")
    _run_filters(retry)
    retry.add_argument("--json", action="store_true", help=_ONE)
    export = add_verb("export", "Finished runs as JSON lines, oldest first.")
    text = "finished then or later; RFC 3339"
    export.add_argument("--since", type=_instant, metavar="T", required=True, help=text)
    export.add_argument("--until", type=_instant, metavar="T", required=True, help="finished before then")
    export.add_argument("--json", action="store_true", help="as it does anyhow")


def _dead(add_verb: Add) -> None:
    listed = add_verb("list", "What lies in scheduler_dead, oldest first.")
    _listing(listed)
    show = add_verb("show", "One dead letter with all that is known of it.")
    replay = add_verb("replay", "Send it again to where it came from, and remove it once that is confirmed; "
                                "of a run that was given up: retry it.")
    drop = add_verb("drop", "Remove it for good; asks first.")
    drop.add_argument("--yes", action="store_true", help=_YES)
    for each in (show, replay, drop):
        each.add_argument("--json", action="store_true", help=_ONE)
        each.add_argument("id", type=UUID, metavar="ID", help="as `dead list` has it")


def _delayed(add_verb: Add) -> None:
    listed = add_verb("list", "Messages that wait, those that come out next first.")
    listed.add_argument("--routing-key", metavar="KEY", help="under this routing key only")
    listed.add_argument("--since", type=_instant, metavar="T", help="due then or later; RFC 3339")
    _listing(listed)
    show = add_verb("show", "One message that waits, with its properties, headers and body.")
    cancel = add_verb("cancel", "Take a message back before it comes out; asks first.")
    cancel.add_argument("--yes", action="store_true", help=_YES)
    for each in (show, cancel):
        each.add_argument("--json", action="store_true", help=_ONE)
        text = "its message_id where that is a UUID, otherwise the number that the list shows"
        each.add_argument("id", type=_delayed_id, metavar="ID", help=text)
    moved = add_verb("migrate", "Pairs of entry and exit for the plugin's exchanges, from a broker's definitions.")
    moved.add_argument("definitions", type=Path, metavar="DEFINITIONS.json",
                       help="as `rabbitmqctl export_definitions` writes it")
    moved.add_argument("--apply", action="store_true", help="declare them, in the virtual host of AMQP_URL")
    moved.add_argument("--vhost", metavar="NAME", help="which of the definitions' virtual hosts")
    moved.add_argument("--suffix", default="", metavar="TEXT",
                       help="added to the names, to have both side by side while the plugin still runs")
    moved.add_argument("--json", action="store_true", help=_ONE)


def _job_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=VISIBLE_STATUSES, metavar="S",
                        help=f"one of {', '.join(VISIBLE_STATUSES)}")
    parser.add_argument("--job-type", metavar="T", help="of this type only")
    parser.add_argument("--tenant", metavar="T", help="of this tenant only")
    priorities = [each.value for each in Priority]
    parser.add_argument("--priority", choices=priorities, metavar="P", help=f"one of {', '.join(priorities)}")
    parser.add_argument("--q", metavar="TEXT", help="whose id, name or type begins so")


def _run_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=_RUN_STATUSES, metavar="S", help=f"one of {', '.join(_RUN_STATUSES)}")
    parser.add_argument("--job", type=UUID, metavar="ID", help="of this job only")
    parser.add_argument("--job-type", metavar="T", help="of jobs of this type only")
    parser.add_argument("--tenant", metavar="T", help="of this tenant only")
    parser.add_argument("--since", type=_instant, metavar="T", help="due then or later; RFC 3339")
    parser.add_argument("--until", type=_instant, metavar="T", help="due before then")


def _listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_count, default=50, metavar="N", help="at most so many (default: 50)")
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def _event(parser: argparse.ArgumentParser, **how: Any) -> None:
    parser.add_argument("event_id", type=UUID, metavar="EVENT_ID", help="of its event, the same for every attempt",
                        **how)


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _delayed_id(text: str) -> UUID | int:
    try:
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a UUID, or a number of the list") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_LISTED:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_LISTED}")
    return int(text)


def _span(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    span = timedelta(seconds=int(found[1]) * _UNITS[found[2]]) if found else timedelta()
    if not timedelta() < span <= LONGEST_TOKEN:
        raise argparse.ArgumentTypeError("must be a time such as 90s, 30m, 8h or 7d, up to a year")
    return span


def _tenant(text: str) -> str:
    if not re.fullmatch(TENANT_PATTERN, text):
        raise argparse.ArgumentTypeError("must be 1 to 100 of A-Z a-z 0-9 . _ -")
    return text
