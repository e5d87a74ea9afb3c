"""`scheduler dead list|show|replay|drop`: each returns what is wrong, or None."""

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from scheduler.cli.terminal import plain
from scheduler.cli.verb_helpers import cli_caller, confirm, open_connection, table, wake_horizon
from scheduler.commands import operator_commands
from scheduler.commands.operator_commands import NoSuchRecord
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
    """Print what lies there, oldest first."""
    found = [dead_view(each) for each in _letters(settings).look(args.limit)]
    if args.json:
        print(json.dumps([each.model_dump(mode="json") for each in found]))
        return
    rows = [(each.id, each.at or "", each.routing_key, each.reason) for each in found]
    print("\n".join(table(_HEAD, rows)) if found else "Nothing lies in scheduler_dead.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one with all that is known of it."""
    letter = _letters(settings).find(str(args.id))
    if letter is None:
        return _missing(args)
    view = dead_view(letter)
    if args.json:
        print(view.model_dump_json())
        return None
    facts = {"id": view.id, "key": view.routing_key, "from": view.exchange or "not known", "since": view.at or "?",
             "reason": view.reason, "size": f"{view.size:,} bytes"}
    print("\n".join(f"{name:<8} {plain(value)}" for name, value in facts.items()))
    for title, value in (("headers", view.headers), ("properties", view.properties), ("body", view.body)):
        print(f"\n{title}\n{json.dumps(value, indent=2)}")
    return None


def replay(settings: Settings, args: Namespace) -> str | None:
    """Send one again to where it came from; of a run that was given up: retry it."""
    with _noted(settings) as connection:

        def retry_run(letter: DeadLetter) -> None:
            try:
                event_id = UUID(json.loads(letter.body)["event_id"])
                incoming = Incoming(ScheduleRetry(event_id=event_id), str(event_id), caller=cli_caller())
                operator_commands.retry_run(connection, incoming, None, wake_horizon(settings))
            except (ValueError, TypeError, KeyError):
                raise NotReplayable("it is no event of ours") from None
            except (NoSuchRecord, Rejected):
                raise NotReplayable("its run was pruned") from None

        try:
            letter = _letters(settings).replay(str(args.id), retry_run)
        except NotReplayable as error:
            return f"it stays where it is: {error}"
        if letter is None:
            return _missing(args)
        _note(connection, "replay", letter)
    words = "its run is tried again" if letter.run_given_up else f"sent to {letter.exchange} again"
    view = dead_view(letter)
    print(view.model_dump_json() if args.json else f"{words}; it was there because of: {plain(view.reason)}")
    return None


def drop(settings: Settings, args: Namespace) -> str | None:
    """Remove one for good."""
    if problem := confirm(f"To drop {args.id}", yes=args.yes):
        return problem
    with _noted(settings) as connection:
        letter = _letters(settings).drop(str(args.id))
        if letter is None:
            return _missing(args)
        _note(connection, "drop", letter)
    print(dead_view(letter).model_dump_json() if args.json else "dropped")
    return None


def _letters(settings: Settings) -> DeadLetterQueue:
    return DeadLetterQueue(settings.amqp_urls, settings.delay_exchanges)


@contextmanager
def _noted(settings: Settings) -> Iterator[Connection]:
    """Have the database at hand before anything is done, for the audit must tell of it."""
    with open_connection(settings, "dead") as connection:
        yield connection


def _note(connection: Connection, action: str, letter: DeadLetter) -> None:
    after = json.dumps({"routing_key": letter.routing_key})
    write_entry(connection, [AuditEntry(cli_caller(), action, "dead", letter.id, "*", after=after)])


def _missing(args: Namespace) -> str:
    return f"no dead letter has the id {args.id}; somebody may look at it at this moment"
