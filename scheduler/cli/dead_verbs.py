"""`scheduler dead list|show|replay|drop`: functions that return an error text, or None."""

import json
import sys
from argparse import Namespace
from uuid import UUID

from scheduler.cli.terminal import plain
from scheduler.cli.verb_helpers import cli_caller, confirm, open_connection, table, wake_horizon
from scheduler.commands import operator_commands
from scheduler.commands.operator_commands import NoSuchRecord
from scheduler.commands.replayed_letters import apply_letter, is_applied
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleRetry
from scheduler.postgres.audit import AuditEntry, write_entry
from scheduler.postgres.connection import Connection
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue, NotReplayable
from scheduler.settings import Settings
from scheduler.views.dead_letters import dead_view

_HEAD = ("ID", "SINCE", "KEY", "REASON")


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print dead letters, oldest first."""
    page = _queue(settings).page(args.limit)
    if page.incomplete:
        print(f"incomplete: {page.incomplete}", file=sys.stderr)
    letters = [dead_view(letter) for letter in page.letters]
    if args.json:
        print(json.dumps([letter.model_dump(mode="json") for letter in letters]))
        return
    rows = [(letter.id, letter.at or "", letter.routing_key, letter.reason) for letter in letters]
    print("\n".join(table(_HEAD, rows)) if letters else "scheduler_dead is empty.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one dead letter."""
    letter = _queue(settings).find(str(args.id))
    if letter is None:
        return _missing(args)
    view = dead_view(letter)
    if args.json:
        print(view.model_dump_json())
        return None
    facts = {"id": view.id, "key": view.routing_key, "from": view.exchange or "unknown", "since": view.at or "?",
             "reason": view.reason, "size": f"{view.size:,} bytes"}
    print("\n".join(f"{name:<8} {plain(value)}" for name, value in facts.items()))
    for title, value in (("headers", view.headers), ("properties", view.properties), ("body", view.body)):
        print(f"\n{title}\n{json.dumps(value, indent=2)}")
    return None


def replay(settings: Settings, args: Namespace) -> str | None:
    """Replay one dead letter to its exchange, or retry its run if it is a dead run's event."""
    # Connect first: a replay that the audit log cannot record must not happen.
    with open_connection(settings, "dead") as connection:

        def apply(letter: DeadLetter) -> bool:
            if letter.is_dead_run:
                retry_run(letter)
            elif is_applied(letter, settings):
                apply_letter(connection, letter, settings, wake_horizon(settings))
            else:
                return False
            return True

        def retry_run(letter: DeadLetter) -> None:
            try:
                event_id = UUID(json.loads(letter.body)["event_id"])
                incoming = Incoming(ScheduleRetry(event_id=event_id), str(event_id), caller=cli_caller())
                operator_commands.retry_run(connection, incoming, None, wake_horizon(settings))
            except (ValueError, TypeError, KeyError):
                raise NotReplayable("its body is not an event") from None
            except (NoSuchRecord, Rejected):
                raise NotReplayable("its run was deleted after its retention") from None

        try:
            letter = _queue(settings).replay(str(args.id), apply)
        except NotReplayable as error:
            return f"cannot replay: {error}"
        if letter is None:
            return _missing(args)
        _write_audit(connection, "replay", letter)
    done = "run retried" if letter.is_dead_run else f"replayed to {letter.exchange}"
    view = dead_view(letter)
    print(view.model_dump_json() if args.json else f"{done}; dead-letter reason: {plain(view.reason)}")
    return None


def drop(settings: Settings, args: Namespace) -> str | None:
    """Delete one dead letter."""
    if not args.yes and _queue(settings).find(str(args.id)) is None:
        return _missing(args)
    if problem := confirm(f"delete {args.id}", yes=args.yes):
        return problem
    with open_connection(settings, "dead") as connection:
        letter = _queue(settings).drop(str(args.id))
        if letter is None:
            return _missing(args)
        _write_audit(connection, "drop", letter)
    print(dead_view(letter).model_dump_json() if args.json else "deleted")
    return None


def _queue(settings: Settings) -> DeadLetterQueue:
    return DeadLetterQueue(settings.amqp_urls, settings.delay_exchanges)


def _write_audit(connection: Connection, action: str, letter: DeadLetter) -> None:
    after = json.dumps({"routing_key": letter.routing_key})
    write_entry(connection, [AuditEntry(cli_caller(), action, "dead", letter.id, "*", after=after)])


def _missing(args: Namespace) -> str:
    return f"no dead letter has the id {args.id}; if another client holds it now, try again"
