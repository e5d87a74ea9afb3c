"""Check `issued_at`: a timestamp from a broken clock must not win over all later commands."""

from datetime import datetime, timedelta

from scheduler.domain.errors import Problem, Rejected

# A command issued further ahead of the database's clock is rejected; one stored by release 0.2 does not win.
TRUSTED_AHEAD = timedelta(days=1)


def check_issued_at(issued_at: datetime | None, now: datetime) -> None:
    """Raise Rejected if a command was issued too long after `now`, the database's clock."""
    if issued_at is not None and issued_at - now > TRUSTED_AHEAD:
        raise Rejected([Problem("issued_at", "is more than a day ahead of the database's clock")])
