"""Arguments of `scheduler job create` and `edit`."""

import argparse
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from scheduler.cli import times
from scheduler.cli.id_prefixes import LEAST, id_of
from scheduler.domain.messages import Priority


class _Option(argparse.Action):
    """Collects the options that are fields of the request in `fields`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:  # noqa: ARG002 - argparse's
        namespace.fields = namespace.fields | {self.dest: True if self.nargs == 0 else values}


def declare(add_verb: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Declare both verbs."""
    created = add_verb("create", "Create a job and print its id.")
    edited = add_verb("edit", "Change fields of a job; without options, edit its request in $VISUAL or $EDITOR.")
    created.add_argument("--id", type=UUID, metavar="ID", help="job id (default: a new one)")
    edited.add_argument("id", type=id_of("job"), metavar="ID",
                        help=f"job id, or its first {LEAST} characters or more")
    for verb in (created, edited):
        verb.set_defaults(module="scheduler.cli.job_request", fields={})
        _add_fields(verb)
        verb.add_argument("--file", metavar="FILE", help="ScheduleRequest as JSON or YAML; - for standard input")
        verb.add_argument("--json", action="store_true", help="print the job as JSON")


def _add_fields(verb: argparse.ArgumentParser) -> None:
    def add(name: str, metavar: str, text: str, group: Any = verb, **how: Any) -> None:
        group.add_argument(name, action=_Option, metavar=metavar, help=text, default=argparse.SUPPRESS, **how)

    add("--job-type", "T", "job type")
    add("--payload", "JSON", "payload, a JSON object", type=_payload)
    start, rule = verb.add_mutually_exclusive_group(), verb.add_mutually_exclusive_group()
    add("--run-at", "T", f"first run; {times.HELP}", start, type=times.absolute)
    start.add_argument("--manual", action=_Option, nargs=0, default=argparse.SUPPRESS,
                       help="no schedule: the job runs only when it is triggered")
    add("--rrule", "TEXT", "RFC 5545, such as 'FREQ=WEEKLY;BYDAY=MO,WE'", rule)
    add("--cron", "TEXT", "five fields or @daily, such as '30 2 * * 1-5'", rule)
    add("--every", "TEXT", "ISO 8601 duration or seconds, such as PT15M", rule, type=_every)
    add("--timezone", "Z", "IANA name (default: UTC)")
    add("--name", "TEXT", "name")
    add("--description", "TEXT", "description")
    add("--tenant", "T", "owner")
    priorities = [priority.value for priority in Priority]
    add("--priority", "P", f"one of {', '.join(priorities)}", choices=priorities)
    add("--route", "ROUTE", "route of the events")
    verb.add_argument("--paused", action=_Option, nargs=0, default=argparse.SUPPRESS,
                      help="store the job paused")


def _payload(text: str) -> Any:
    """Return the JSON value; text that is not JSON is rejected as the request's payload."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _every(text: str) -> str | float:
    try:
        seconds = float(text)
    except ValueError:
        return text
    return int(seconds) if seconds.is_integer() else seconds
