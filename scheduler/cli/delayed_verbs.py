"""`scheduler delayed list|show|cancel|migrate`: functions that return an error text, or None."""

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

_HEAD = ("DUE", "ID", "BYTES", "EXCHANGE", "KEY", "RETRIES")


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print pending delayed messages, next due first."""
    filters = DelayedFilter(routing_key=args.routing_key, since=args.since)
    with open_connection(settings, "delayed list") as connection:
        messages = [delayed_view(row) for row in list_delayed(connection, filters, args.limit)]
    if args.json:
        print(json.dumps([message.model_dump() for message in messages]))
        return
    rows = [
        (message.due_at or "", message.id, f"{message.size:,}", message.exchange, message.routing_key,
         f"{message.retries}: {message.last_problem}" if message.retries else "")
        for message in messages
    ]
    print("\n".join(table(_HEAD, rows)) if messages else "No matching delayed messages.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one delayed message with its properties, headers and body."""
    with open_connection(settings, "delayed show") as connection:
        message = find_delayed(connection, args.id)
    if message is None:
        return _missing(args)
    view = whole_delayed_view(message)
    if args.json:
        print(view.model_dump_json())
        return None
    for name, value in view.model_dump(exclude={"headers", "properties", "body"}, exclude_none=True).items():
        print(f"{name:<14} {plain(str(value))}")
    for title, part in (("headers", view.headers), ("properties", view.properties), ("body", view.body)):
        print(f"\n{title}\n{json.dumps(part, indent=2)}")
    return None


def cancel(settings: Settings, args: Namespace) -> str | None:
    """Cancel one delayed message; a UUID leaves a tombstone for an hour, as the command `cancel` does."""
    with open_connection(settings, "delayed cancel") as connection:
        message = find_delayed(connection, args.id)
        connection.rollback()
        if message is None:
            return _missing(args)
        if problem := confirm(f"cancel {args.id}", yes=args.yes):
            return problem
        with transaction(connection) as cursor:
            if not cancel_delayed(cursor, args.id):
                return _missing(args)
            write_entries(cursor, [AuditEntry(cli_caller(), "cancel", "delayed", str(args.id), "*")])
    print(whole_delayed_view(message).model_dump_json() if args.json else "cancelled")
    return None


def migrate(settings: Settings, args: Namespace) -> str | None:
    """Print or declare the replacements for the plugin's exchanges."""
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
    print("\n".join(plan.lines()) or "No exchange has the plugin's type.")
    if not apply:
        return "; ".join(plan.problems) or None
    problems = plugin_declarations.apply(settings.amqp_urls[0], plan, settings.queue_type)
    for problem in problems:
        print(f"problem   {problem}")
    if problems:
        return f"{len(problems)} could not be declared; fix the problems and run the command again"
    print("declared; set SCHEDULER_DELAY_EXCHANGES for every process of the sidecar and restart them")
    return "; ".join(plan.problems) or None


def _vhost(text: str, settings: Settings, option: str | None) -> str | None:
    """Return the virtual host to read: the option's, that of AMQP_URL, or the only one."""
    vhosts = plugin_migration.vhosts(text)
    if not vhosts:
        return None
    connected = unquote(urlsplit(settings.amqp_urls[0]).path[1:]) or "/"
    chosen = option if option is not None else connected
    if chosen in vhosts:
        return chosen
    if option is None and len(vhosts) == 1:
        return vhosts[0]
    names = ", ".join(map(repr, vhosts))
    raise plugin_migration.InvalidDefinitions(f"exchanges of the plugin are in {names}; choose one with --vhost")


def _missing(args: Namespace) -> str:
    return f"no delayed message {args.id} is pending; it may have been delivered"
