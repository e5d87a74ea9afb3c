"""Errors: the type decides what happens to the message."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from scheduler.domain.schedule_fields import SCHEDULE_FIELDS


class SchedulerError(Exception):
    """Base class of the scheduler's errors."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one field of a command, and its fix."""

    field: str
    problem: str


MAX_PROBLEMS = 20
INTERNAL_ERROR = "internal error, see the scheduler's log"


def limit_problems(problems: Iterable[Problem], more: int | None = 0) -> tuple[Problem, ...]:
    """Return the first problems and one that counts the others; `more` None: an unknown number."""
    listed = tuple(problems)
    if len(listed) > MAX_PROBLEMS and more is not None:
        more += len(listed) - MAX_PROBLEMS
    if more == 0:
        return listed
    rest = "and more" if more is None else f"and {more:,} more"
    return (*listed[:MAX_PROBLEMS], Problem("body", rest))


class Reason(StrEnum):
    """Reasons by which rejections are counted."""

    JSON = "json"
    SHAPE = "shape"
    SCHEDULE = "schedule"
    STORAGE = "storage"
    REDELIVERED = "redelivered"


class Rejected(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """The command can never succeed: dead-letter it with its reasons."""

    def __init__(
        self, problems: Iterable[Problem], reason: Reason | None = None, *, more: int | None = 0
    ) -> None:
        """Store the problems; `more` is the number of others, None if unknown."""
        self.problems = limit_problems(problems, more)
        fields = {problem.field for problem in self.problems}
        self.reason = reason or (Reason.SHAPE if fields.isdisjoint(SCHEDULE_FIELDS) else Reason.SCHEDULE)
        super().__init__("; ".join(f"{p.field}: {p.problem}" for p in self.problems))

    def without_traceback(self) -> "Rejected":
        """Return it without its traceback.

        The frames refer to the batch, and the batch to the rejection: only the cycle collector could free them.
        """
        self.__context__ = None
        return self.with_traceback(None)


class Unparsed(Rejected):
    """The body was not parsed, so it has no readable fields."""

    def __init__(self, problem: str) -> None:
        super().__init__([Problem("body", problem)], Reason.JSON)


class Unavailable(SchedulerError):  # noqa: N818 - a state, not a failure
    """A dependency is down: roll back, back off, retry."""


class NotMigrated(Unavailable):
    """A table or a column is missing: the database waits for `scheduler migrate`."""


class Misconfigured(SchedulerError):  # noqa: N818 - a state, not a failure
    """The operator must change the configuration before this program can run."""
