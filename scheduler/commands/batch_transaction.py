"""A batch in one transaction: again when others were at the same rows, one by one when Postgres refuses one.

Rows that another session keeps locked hold nothing else up: what is about them is left out.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from scheduler.commands.decide_commands import LOCKED, MessageOutcome, RetryOutcome
from scheduler.domain.errors import Problem, Reason, Rejected, Unavailable
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.postgres.connection import Connection, Contended, Cursor, LockTimeout, Unstorable, transaction
from scheduler.postgres.large_values import RowsTooLarge
from scheduler.postgres.locks import wait_briefly


class Message(Protocol):
    """A command, a result or a delayed message."""

    @property
    def about(self) -> str:
        """The id of the row that it changes."""


Each = TypeVar("Each", bound=Message)
_TRIES = 20
_SEARCH_SECONDS = 2.0  # for messages that wait for a lock which finding locked rows doesn't show


def run_in_transaction(
    connection: Connection, batch: Sequence[Each],
    execute: Callable[[Cursor, Sequence[Each]], list[MessageOutcome]],
    find_locked: Callable[[Cursor, Sequence[Each]], set[str]], *, wait_for_locks: bool = True,
) -> list[MessageOutcome]:
    """Have the batch executed and return what became of each, in order.

    The batch waits for rows that another session has locked, as long as its own session's lock_timeout. Then, or
    at once unless `wait_for_locks`, messages about them are left out as LOCKED and the rest is stored.
    `find_locked` returns such ids without waiting, and locks the other rows.
    """
    return _Attempts(connection, execute, find_locked).run(batch, skip_locked=not wait_for_locks)


@dataclass(slots=True)
class _Attempts(Generic[Each]):
    connection: Connection
    execute: Callable[[Cursor, Sequence[Each]], list[MessageOutcome]]
    find_locked: Callable[[Cursor, Sequence[Each]], set[str]]
    search_until: float | None = None
    locked: set[str] = field(default_factory=set)  # for the later messages about the same: their order must hold

    def run(self, batch: Sequence[Each], *, skip_locked: bool) -> list[MessageOutcome]:
        if self.locked:
            return without_locked(batch, self.locked, lambda rest: self._run(rest, skip_locked=skip_locked))
        return self._run(batch, skip_locked=skip_locked)

    def _run(self, batch: Sequence[Each], *, skip_locked: bool) -> list[MessageOutcome]:
        for _ in range(_TRIES):
            try:
                with transaction(self.connection) as cursor:
                    return self._execute_unlocked(cursor, batch) if skip_locked else self.execute(cursor, batch)
            except Contended:
                # Another process created or changed one of these rows at the same moment; now they are all
                # there, and the next try locks them in order.
                continue
            except LockTimeout:
                if len(batch) == 1 or (skip_locked and self._searched_enough()):
                    self.locked.update(each.about for each in batch)
                    return [LOCKED] * len(batch)
                return self._parts(_halves(batch) if skip_locked else [batch], skip_locked=True)
            except RowsTooLarge:
                verdicts = self._parts(_halves(batch), skip_locked=skip_locked)
                return [_without_content(verdict) for verdict in verdicts]
            except Unstorable as error:
                # Some value that Postgres refuses although it passed validation: find whose it is.
                if len(batch) > 1:
                    return self._parts([[one] for one in batch], skip_locked=skip_locked)
                problem = Problem("body", f"Postgres cannot store it: {str(error)[:300]}")
                return [Rejected([problem], Reason.STORAGE)]
        raise Unavailable("Postgres: too many processes store the same rows at once")

    def _parts(self, parts: Iterable[Sequence[Each]], *, skip_locked: bool) -> list[MessageOutcome]:
        return [verdict for part in parts for verdict in self.run(part, skip_locked=skip_locked)]

    def _execute_unlocked(self, cursor: Cursor, batch: Sequence[Each]) -> list[MessageOutcome]:
        """Execute what is about rows that nobody else has locked."""
        wait_briefly(cursor)
        self.locked |= self.find_locked(cursor, batch)
        return without_locked(batch, self.locked, lambda rest: self.execute(cursor, rest))

    def _searched_enough(self) -> bool:
        now = time.monotonic()
        if self.search_until is None:
            self.search_until = now + _SEARCH_SECONDS
        return now > self.search_until


def without_locked(
    batch: Sequence[Each], locked: AbstractSet[str], execute: Callable[[Sequence[Each]], Sequence[MessageOutcome]]
) -> list[MessageOutcome]:
    """Execute what is not about a locked id; the rest is LOCKED."""
    left_out = [each.about in locked for each in batch]
    rest = [each for each, out in zip(batch, left_out, strict=True) if not out]
    verdicts = iter(execute(rest) if rest else ())
    return [LOCKED if out else next(verdicts) for out in left_out]


def _halves(batch: Sequence[Each]) -> list[Sequence[Each]]:
    half = len(batch) // 2
    return [batch[:half], batch[half:]]


def _without_content(verdict: MessageOutcome) -> MessageOutcome:
    """Free what is large of a job or a run that is stored: no reply needs it."""
    if isinstance(verdict, CommandOutcome):
        return replace(verdict, job=replace(verdict.job, definition=None))
    if isinstance(verdict, RetryOutcome):
        return replace(verdict, run=replace(verdict.run, attempts=(), output=None, occurrence=None))
    return verdict
