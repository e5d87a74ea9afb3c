"""The error's type decides what happens to the message."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class SchedulerError(Exception):
    """Any error of ours."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a command: which field, and what to do about it."""

    field: str
    problem: str


MOST_PROBLEMS = 20


def capped(problems: Iterable[Problem], more: int | None = 0) -> tuple[Problem, ...]:
    """Return the first problems, and one more that counts the others; `more` None: there are some."""
    listed = tuple(problems)
    if len(listed) > MOST_PROBLEMS and more is not None:
        more += len(listed) - MOST_PROBLEMS
    if more == 0:
        return listed
    rest = "and more" if more is None else f"and {more:,} more"
    return (*listed[:MOST_PROBLEMS], Problem("body", rest))


class Reason(StrEnum):
    """The few words under which rejections are counted."""

    JSON = "json"
    SHAPE = "shape"
    SCHEDULE = "schedule"
    STORAGE = "storage"
    REDELIVERED = "redelivered"


_SCHEDULE_FIELDS = {"rrule", "cron", "every", "run_at", "timezone", "calendar", "on_closed", "window", "jitter"}


class Rejected(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """The command can never succeed: dead-letter it with its reasons."""

    def __init__(
        self, problems: Iterable[Problem], reason: Reason | None = None, *, more: int | None = 0
    ) -> None:
        """Take the problems and how many more there are; None: an unknown number."""
        self.problems = capped(problems, more)
        about = {each.field for each in self.problems}
        self.reason = reason or (Reason.SCHEDULE if about & _SCHEDULE_FIELDS else Reason.SHAPE)
        super().__init__("; ".join(f"{p.field}: {p.problem}" for p in self.problems))

    def kept(self) -> "Rejected":
        """Return it without the frames that it came through.

        What is kept of a batch is known to those frames, which would know it in turn: a ring that only the cycle
        collector can free, and it seldom looks.
        """
        self.__context__ = None
        return self.with_traceback(None)


class Unavailable(SchedulerError):  # noqa: N818 - a state, not an accident
    """A dependency is down: roll back, back off, try again."""


class Misconfigured(SchedulerError):  # noqa: N818 - a state, not an accident
    """The operator must change something before this program can run."""
