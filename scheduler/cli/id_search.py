"""Search for ids by prefix, in the database or in scheduler_dead."""

from argparse import Namespace
from collections.abc import Sequence
from uuid import UUID

from scheduler.cli.id_prefixes import IdPrefix, UnknownId
from scheduler.cli.terminal import plain
from scheduler.cli.verb_helpers import open_connection
from scheduler.postgres.delayed.operator_queries import find_delayed
from scheduler.postgres.id_search import list_ids
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue
from scheduler.rabbit.dead_letter_reader import MAX_LETTERS
from scheduler.settings import Settings

_MAX_SHOWN = 10
_NAMES = {"delayed": "delayed message", "dead": "dead letter"}


def complete_ids(settings: Settings, args: Namespace) -> None:
    """Replace each prefix in the arguments by its id. Raises UnknownId unless exactly one matches."""
    for name, value in vars(args).copy().items():
        if isinstance(value, IdPrefix):
            setattr(args, name, _complete(settings, value))


def _complete(settings: Settings, prefix: IdPrefix) -> UUID | int:
    matches = _search(settings, prefix, _MAX_SHOWN + 1)
    if not matches:
        raise UnknownId(f"no {_NAMES.get(prefix.kind, prefix.kind)} has an id that begins with {prefix.text}")
    if len(matches) > 1:
        more = ["  …"] if len(matches) > _MAX_SHOWN else []
        lines = [f"several ids begin with {prefix.text}; give more characters:",
                 *(f"  {'  '.join(filter(None, match))}" for match in matches[:_MAX_SHOWN]), *more]
        raise UnknownId("\n".join(lines))
    [(match, *_)] = matches
    return int(match) if match == str(prefix.number) else UUID(match)


def _search(settings: Settings, prefix: IdPrefix, limit: int) -> list[tuple[str, ...]]:
    """Return up to `limit` ids with this prefix, each with a description."""
    if prefix.kind == "dead":
        rows: Sequence[tuple[str, ...]] = sorted(_dead_letters(settings, prefix.text))[:limit]
    else:
        with open_connection(settings, "id search") as connection:
            rows = list_ids(connection, prefix.kind, prefix.first, prefix.last, limit)
            if prefix.number is not None and (message := find_delayed(connection, prefix.number)) is not None:
                rows = [*rows, (str(prefix.number), message.listed.exchange)]
    return [(row[0], *(plain(value, 60) for value in row[1:])) for row in rows]


def _dead_letters(settings: Settings, prefix: str) -> set[tuple[str, str]]:
    queue = DeadLetterQueue(settings.amqp_urls, settings.delay_exchanges)
    matches: set[tuple[str, str]] = set()
    position = ("", "")
    while True:
        page = queue.page(MAX_LETTERS, position)
        matches |= {(letter.id, letter.routing_key) for letter in page.letters if letter.id.startswith(prefix)}
        if not page.more or not page.letters:
            return matches
        position = page.letters[-1].position
