"""Compare schedules by parsed values, not by text."""

from dataclasses import fields
from operator import attrgetter

from scheduler.domain.recurrence.cron import read_cron
from scheduler.domain.recurrence.rrule_text import read_text
from scheduler.domain.recurrence.rule import Rule
from scheduler.domain.recurrence.spec import Spec, StartSource

_rule_parts = attrgetter(*(field.name for field in fields(Rule)))


def same_schedule(stored: Spec, requested: Spec) -> bool:
    """Return whether a request's schedule fields equal the stored ones.

    A request without a start equals one that was stored without it. Rows of release 0.2 don't record that and
    are equal too. A given start is compared by its instant and by its wall time, which differs in a gap.
    """
    if requested.start_source == StartSource.STORED:
        same_start = stored.start_source != StartSource.RUN_AT
    else:
        same_start = (requested.starts_at, requested.dtstart) == (stored.starts_at, stored.dtstart)
    return (
        same_start and requested.timezone == stored.timezone and requested.every == stored.every
        and _same_cron(stored.cron, requested.cron) and _same_rule(stored.rrule, requested.rrule)
    )


def _same_cron(stored: str | None, requested: str | None) -> bool:
    if stored is None or requested is None or stored == requested:
        return stored == requested
    return read_cron(stored).key == read_cron(requested).key


def _same_rule(stored: str | None, requested: str | None) -> bool:
    """Compare everything except DTSTART, which is the start."""
    if stored is None or requested is None or stored == requested:
        return stored == requested
    one, other = read_text(stored), read_text(requested)
    return (
        _rule_parts(one.rule) == _rule_parts(other.rule)
        and set(one.rdates) == set(other.rdates) and set(one.exdates) == set(other.exdates)
    )
