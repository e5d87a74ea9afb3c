"""Bounds of `issued_at`: one stamp from a broken clock must not win over all later commands."""

from datetime import datetime, timedelta

from scheduler.domain.errors import Problem, Rejected

# A stamp further ahead of the database's clock than this does not win over commands that come after it.
TRUSTED_AHEAD = timedelta(days=1)
# One further ahead than this is rejected: it is a mistake, such as a year or a unit.
ACCEPTED_AHEAD = timedelta(days=31)


def check_issued_at(issued_at: datetime | None, now: datetime) -> None:
    """Raise Rejected if a command was issued too long after `now`, the database's clock."""
    if issued_at is not None and issued_at - now > ACCEPTED_AHEAD:
        problem = f"is more than {ACCEPTED_AHEAD.days} days in the future, by the database's clock"
        raise Rejected([Problem("issued_at", problem)])
