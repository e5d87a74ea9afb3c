"""`scheduler delayed list|show|cancel|migrate`: each returns what is wrong, or None."""

import json
from argparse import Namespace
from urllib.parse import unquote, urlsplit

from scheduler.cli.terminal import plain
from scheduler.cli.verb_helpers import cli_caller, confirm, open_connection, table
from scheduler.domain.delayed import plugin_migration
from scheduler.postgres.audit import AuditEntry, write_entries
from scheduler.postgres.connection import transaction
from scheduler.postgres.delayed.operator_queries import DelayedFilter, cancel_delayed, find_delayed, list_delayed
from scheduler.rabbit import plugin_declarations
from scheduler.settings import Settings
from scheduler.views.delayed_messages import delayed_view, whole_delayed_view

_HEAD = ("COMES OUT", "ID", "BYTES", "EXCHANGE", "KEY", "TRIES")


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print those that wait, next first."""
    wanted = DelayedFilter(routing_key=args.routing_key, since=args.since)
    with open_connection(settings, "delayed list") as connection:
        found = [delayed_view(each) for each in list_delayed(connection, wanted, args.limit)]
    if args.json:
        print(json.dumps([each.model_dump() for each in found]))
        return
    rows = [
        (each.due_at or "", each.id, f"{each.size:,}", each.exchange, each.routing_key,
         f"{each.retries}: {each.last_problem}" if each.retries else "")
        for each in found
    ]
    print("\n".join(table(_HEAD, rows)) if found else "No delayed message is like that.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one with its properties, headers and body."""
    with open_connection(settings, "delayed show") as connection:
        found = find_delayed(connection, args.id)
    if found is None:
        return _missing(args)
    view = whole_delayed_view(found)
    if args.json:
        print(view.model_dump_json())
        return None
    for name, value in view.model_dump(exclude={"headers", "properties", "body"}, exclude_none=True).items():
        print(f"{name:<14} {plain(str(value))}")
    for title, part in (("headers", view.headers), ("properties", view.properties), ("body", view.body)):
        print(f"\n{title}\n{json.dumps(part, indent=2)}")
    return None


def cancel(settings: Settings, args: Namespace) -> str | None:
    """Take one back; with a UUID it stays away for an hour, as by the command `cancel`."""
    if problem := confirm(f"To take back {args.id}", yes=args.yes):
        return problem
    with open_connection(settings, "delayed cancel") as connection:
        found = find_delayed(connection, args.id)
        connection.rollback()
        with transaction(connection) as cursor:
            if found is None or not cancel_delayed(cursor, args.id):
                return _missing(args)
            write_entries(cursor, [AuditEntry(cli_caller(), "cancel", "delayed", str(args.id), "*")])
    print(whole_delayed_view(found).model_dump_json() if args.json else "cancelled: it does not come out")
    return None


def migrate(settings: Settings, args: Namespace) -> str | None:
    """Print what takes the place of the plugin's exchanges, or declare it."""
    try:
        text = args.definitions.read_text(encoding="utf-8")
        plan = plugin_migration.plan(text, _vhost(text, settings, args.vhost), args.suffix)
    except (OSError, UnicodeDecodeError, plugin_migration.InvalidDefinitions) as error:
        return f"{args.definitions}: {error}"
    apply = args.apply and bool(plan.pairs)
    if args.json:
        problems = plugin_declarations.apply(settings.amqp_urls[0], plan, settings.queue_type) if apply else []
        print(json.dumps(plan.as_json() | {"declared": apply and not problems, "undeclared": problems}))
        return "; ".join([*plan.problems, *problems]) or None
    print("\n".join(plan.lines()) or "No exchange is of the plugin's type.")
    if not apply:
        return "; ".join(plan.problems) or None
    problems = plugin_declarations.apply(settings.amqp_urls[0], plan, settings.queue_type)
    for each in problems:
        print(f"problem   {each}")
    if problems:
        return f"{len(problems)} could not be declared; run it again when what is missing is there"
    print("declared; set SCHEDULER_DELAY_EXCHANGES for every process of the sidecar and start them anew")
    return "; ".join(plan.problems) or None


def _vhost(text: str, settings: Settings, wanted: str | None) -> str | None:
    """Return the virtual host to read: the one asked for, that of AMQP_URL, or the only one there is."""
    there = plugin_migration.vhosts(text)
    if not there:
        return None
    ours = unquote(urlsplit(settings.amqp_urls[0]).path[1:]) or "/"
    chosen = wanted if wanted is not None else ours
    if chosen in there:
        return chosen
    if wanted is None and len(there) == 1:
        return there[0]
    named = ", ".join(repr(each) for each in there)
    raise plugin_migration.InvalidDefinitions(f"exchanges of the plugin are in {named}; choose one with --vhost")


def _missing(args: Namespace) -> str:
    return f"no delayed message {args.id} waits; it may be out already"
