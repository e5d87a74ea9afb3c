"""A batch in one transaction: again when others were at the same rows, one by one when Postgres refuses one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from scheduler.commands.decide_commands import Retried, Verdict
from scheduler.domain.errors import Problem, Reason, Rejected, Unavailable
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.postgres.connection import Connection, Contended, Unstorable, transaction
from scheduler.postgres.jobs.store import Cursor
from scheduler.postgres.large_values import RowsTooLarge

Each = TypeVar("Each")
_TRIES = 20


def attempted(
    connection: Connection, batch: Sequence[Each], execute: Callable[[Cursor, Sequence[Each]], list[Verdict]]
) -> list[Verdict]:
    """Have the batch executed and return what became of each, in order."""
    for _ in range(_TRIES):
        try:
            with transaction(connection) as cursor:
                return execute(cursor, batch)
        except Contended:
            # Another process created or changed one of these rows at the same moment; now they are all
            # there, and the next try locks them in order.
            continue
        except RowsTooLarge:
            half = len(batch) // 2
            return [_without_content(verdict) for part in (batch[:half], batch[half:])
                    for verdict in attempted(connection, part, execute)]
        except Unstorable as error:
            # Some value that Postgres refuses although it passed validation: find whose it is.
            if len(batch) > 1:
                return [verdict for one in batch for verdict in attempted(connection, [one], execute)]
            return [Rejected([Problem("body", f"Postgres cannot store it: {str(error)[:300]}")], Reason.STORAGE)]
    raise Unavailable("Postgres: too many processes store the same rows at once")


def _without_content(verdict: Verdict) -> Verdict:
    """Free what is large of a job or a run that is stored: no reply needs it."""
    if isinstance(verdict, CommandOutcome):
        return replace(verdict, job=replace(verdict.job, definition=None))
    if isinstance(verdict, Retried):
        return replace(verdict, run=replace(verdict.run, attempts=(), output=None, occurrence=None))
    return verdict
