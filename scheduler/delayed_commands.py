"""`scheduler delayed list|show|cancel|migrate`: each returns what is wrong, or None."""

import argparse
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from scheduler.domain.delayed import migration
from scheduler.domain.times import parse_instant
from scheduler.postgres.connection import connect, transaction
from scheduler.postgres.delayed.reads import DelayedFilter, Listed, cancel_delayed, find_delayed, list_delayed
from scheduler.rabbit import migrating
from scheduler.settings import Settings
from scheduler.views.delayed import delayed_view, whole_delayed_view

MOST_LISTED = 10_000


def add_verbs(delayed: ArgumentParser) -> None:
    """Add the verbs, each with its arguments."""
    verbs = delayed.add_subparsers(required=True, metavar="VERB", dest="verb")

    def add(verb: str, text: str) -> ArgumentParser:
        return verbs.add_parser(verb, help=text, description=text)

    def add_id(added: ArgumentParser) -> None:
        text = "its message_id where that is a UUID, otherwise the number that the list shows"
        added.add_argument("id", type=_name, metavar="ID", help=text)

    listed = add("list", "Messages that wait, those that come out next first.")
    listed.add_argument("--routing-key", metavar="KEY", help="under this routing key only")
    listed.add_argument("--since", type=_instant, metavar="T", help="due then or later; RFC 3339")
    listed.add_argument("--limit", type=_count, default=50, metavar="N", help="at most so many (default: 50)")
    listed.add_argument("--json", action="store_true", help="print one JSON array")
    show = add("show", "One message that waits, with its properties, headers and body.")
    add_id(show)
    show.add_argument("--json", action="store_true", help="print one JSON object")
    cancel = add("cancel", "Take a message back before it comes out; what is gone is gone.")
    add_id(cancel)
    cancel.add_argument("--yes", action="store_true", help="do not ask")
    moved = add("migrate", "Pairs of entry and exit for the plugin's exchanges, from a broker's definitions.")
    moved.add_argument("definitions", type=Path, metavar="DEFINITIONS.json",
                       help="as `rabbitmqctl export_definitions` writes it")
    moved.add_argument("--apply", action="store_true", help="declare them, in the virtual host of AMQP_URL")
    moved.add_argument("--vhost", metavar="NAME", help="which of the definitions' virtual hosts")
    moved.add_argument("--suffix", default="", metavar="TEXT",
                       help="added to the names, to have both side by side while the plugin still runs")


def _list(settings: Settings, args: Namespace) -> None:
    wanted = DelayedFilter(routing_key=args.routing_key, since=args.since)
    with closing(connect(settings.database_url, "delayed list")) as connection:
        found = list_delayed(connection, wanted, args.limit)
    if args.json:
        print(json.dumps([delayed_view(each).model_dump() for each in found]))
    else:
        print("\n".join(_rows(found)) if found else "No delayed message is like that.")


def _rows(found: list[Listed]) -> list[str]:
    lines = [f"{'comes out (UTC)':<23}  {'id':<36}  {'bytes':>10}  {'exchange':<20}  routing key"]
    for each in found:
        key = each.routing_key.decode("utf-8", "backslashreplace")
        said = f"  ({each.retries} tries: {each.problem})" if each.retries else ""
        lines.append(f"{each.due_at:%Y-%m-%d %H:%M:%S}.{each.due_at.microsecond // 1000:03}  {each.id:<36}  "
                     f"{each.size:>10,}  {each.exchange:<20}  {_printable(key)}{said}")
    return lines


def _show(settings: Settings, args: Namespace) -> str | None:
    with closing(connect(settings.database_url, "delayed show")) as connection:
        found = find_delayed(connection, args.id)
    if found is None:
        return _not_there(args.id)
    view = whole_delayed_view(found).model_dump()
    if args.json:
        print(json.dumps(view))
        return None
    width = max(map(len, view))
    for name, value in view.items():
        print(f"{name:<{width}}  {_printable(value) if isinstance(value, str) else json.dumps(value)}")
    return None


def _cancel(settings: Settings, args: Namespace) -> str | None:
    if not args.yes and not _agreed(f"Take back the delayed message {args.id}? It will not come out."):
        return "nothing was done"
    opened = closing(connect(settings.database_url, "delayed cancel"))
    with opened as connection, transaction(connection) as cursor:
        there = cancel_delayed(cursor, args.id)
    if not there:
        return _not_there(args.id)
    print(f"cancelled: {args.id} does not come out")
    return None


def _migrate(settings: Settings, args: Namespace) -> str | None:
    try:
        text = args.definitions.read_text(encoding="utf-8")
        plan = migration.plan(text, _vhost(text, settings, args.vhost), args.suffix)
    except (OSError, UnicodeDecodeError, migration.NoDefinitions, LookupError) as error:
        return f"{args.definitions}: {error.args[0] if isinstance(error, LookupError) else error}"
    print("\n".join(plan.lines()) or "No exchange is of the plugin's type.")
    if not args.apply or not plan.pairs:
        return "; ".join(plan.problems) or None
    problems = migrating.apply(settings.amqp_urls[0], plan, settings.queue_type)
    for each in problems:
        print(f"problem   {each}")
    if problems:
        return f"{len(problems)} could not be declared; run it again when what is missing is there"
    print("declared; set SCHEDULER_DELAY_EXCHANGES for every process of the sidecar and start them anew")
    return "; ".join(plan.problems) or None


def _vhost(text: str, settings: Settings, wanted: str | None) -> str | None:
    """Return the virtual host to read: the one asked for, that of AMQP_URL, or the only one there is."""
    there = migration.vhosts(text)
    ours = unquote(urlsplit(settings.amqp_urls[0]).path[1:]) or "/"
    if not there:
        return None
    chosen = wanted if wanted is not None else ours
    if chosen in there:
        return chosen
    if wanted is None and len(there) == 1:
        return there[0]
    names = ", ".join(repr(each) for each in there)
    raise LookupError(f"exchanges of the plugin are in {names}; choose one with --vhost")


VERBS: dict[str, Callable[[Settings, Namespace], str | None]] = {
    "list": _list, "show": _show, "cancel": _cancel, "migrate": _migrate,
}


def _not_there(name: UUID | int) -> str:
    return f"no delayed message {name} waits; it may be out already"


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        print("say --yes where nobody can be asked", file=sys.stderr)
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _name(text: str) -> UUID | int:
    try:
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else UUID(text)  # noqa: PLR2004 - as bigint holds
    except ValueError:
        raise argparse.ArgumentTypeError("must be a UUID, or a number of the list") from None


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_LISTED:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_LISTED}")
    return int(text)
