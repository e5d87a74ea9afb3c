"""Run a batch in one transaction; retry on contention, and split the batch if Postgres rejects a value.

Messages whose rows another session keeps locked are left out, so that they do not delay the others.
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


class Message(Protocol):
    """A command, a result or a delayed message."""

    @property
    def about(self) -> str:
        """The id of the row that it changes."""


MessageT = TypeVar("MessageT", bound=Message)
_MAX_ATTEMPTS = 20
_SEARCH_SECONDS = 2.0  # time limit for finding messages whose locks `find_locked` does not detect


def run_in_transaction(
    connection: Connection, batch: Sequence[MessageT],
    execute: Callable[[Cursor, Sequence[MessageT]], list[MessageOutcome]],
    find_locked: Callable[[Cursor, Sequence[MessageT]], set[str]], *, wait_for_locks: bool = True,
) -> list[MessageOutcome]:
    """Execute the batch and return the outcomes in order.

    With `wait_for_locks` the batch first waits up to lock_timeout for locked rows. Then messages about them get
    the outcome LOCKED and the rest is stored. `find_locked` returns locked ids without waiting, locks the other
    rows and shortens lock_timeout.
    """
    return _Attempts(connection, execute, find_locked).run(batch, skip_locked=not wait_for_locks)


@dataclass(slots=True)
class _Attempts(Generic[MessageT]):
    connection: Connection
    execute: Callable[[Cursor, Sequence[MessageT]], list[MessageOutcome]]
    find_locked: Callable[[Cursor, Sequence[MessageT]], set[str]]
    search_until: float | None = None
    locked: set[str] = field(default_factory=set)  # later messages with these ids wait too, in order

    def run(self, batch: Sequence[MessageT], *, skip_locked: bool) -> list[MessageOutcome]:
        if self.locked:
            return without_locked(batch, self.locked, lambda rest: self._run(rest, skip_locked=skip_locked))
        return self._run(batch, skip_locked=skip_locked)

    def _run(self, batch: Sequence[MessageT], *, skip_locked: bool) -> list[MessageOutcome]:
        for _ in range(_MAX_ATTEMPTS):
            try:
                with transaction(self.connection) as cursor:
                    return self._execute_unlocked(cursor, batch) if skip_locked else self.execute(cursor, batch)
            except Contended:
                continue  # another process has just inserted or changed a row; now all can be locked in order
            except LockTimeout:
                if len(batch) == 1 or (skip_locked and self._searched_enough()):
                    self.locked.update(message.about for message in batch)
                    return [LOCKED] * len(batch)
                return self._parts(_halves(batch) if skip_locked else [batch], skip_locked=True)
            except RowsTooLarge:
                outcomes = self._parts(_halves(batch), skip_locked=skip_locked)
                return [_without_content(outcome) for outcome in outcomes]
            except Unstorable as error:
                # Postgres rejects a value that passed validation: find its message.
                if len(batch) > 1:
                    return self._parts([[message] for message in batch], skip_locked=skip_locked)
                problem = Problem("body", f"Postgres cannot store it: {str(error)[:300]}")
                return [Rejected([problem], Reason.STORAGE)]
        raise Unavailable("Postgres: too much contention for the same rows")

    def _parts(self, parts: Iterable[Sequence[MessageT]], *, skip_locked: bool) -> list[MessageOutcome]:
        return [outcome for part in parts for outcome in self.run(part, skip_locked=skip_locked)]

    def _execute_unlocked(self, cursor: Cursor, batch: Sequence[MessageT]) -> list[MessageOutcome]:
        """Execute the messages whose rows no other session has locked."""
        self.locked |= self.find_locked(cursor, batch)
        return without_locked(batch, self.locked, lambda rest: self.execute(cursor, rest))

    def _searched_enough(self) -> bool:
        now = time.monotonic()
        if self.search_until is None:
            self.search_until = now + _SEARCH_SECONDS
        return now > self.search_until


def without_locked(
    batch: Sequence[MessageT], locked: AbstractSet[str],
    execute: Callable[[Sequence[MessageT]], Sequence[MessageOutcome]],
) -> list[MessageOutcome]:
    """Execute the messages whose id is not in `locked`; the outcome of the others is LOCKED."""
    rest = [message for message in batch if message.about not in locked]
    outcomes = iter(execute(rest) if rest else ())
    return [LOCKED if message.about in locked else next(outcomes) for message in batch]


def _halves(batch: Sequence[MessageT]) -> list[Sequence[MessageT]]:
    half = len(batch) // 2
    return [batch[:half], batch[half:]]


def _without_content(outcome: MessageOutcome) -> MessageOutcome:
    """Drop the large fields of a stored job or run, to free memory; replies do not need them."""
    if isinstance(outcome, CommandOutcome):
        return replace(outcome, job=replace(outcome.job, definition=None))
    if isinstance(outcome, RetryOutcome):
        return replace(outcome, run=replace(outcome.run, attempts=(), output=None, occurrence=None))
    return outcome
