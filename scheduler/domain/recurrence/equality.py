"""Compare schedules by parsed values, not by text."""

from dataclasses import fields
from operator import attrgetter

from scheduler.domain.recurrence.cron import read_cron
from scheduler.domain.recurrence.rrule_text import read_text
from scheduler.domain.recurrence.rule import Rule
from scheduler.domain.recurrence.spec import Spec, StartSource

_adjustments = attrgetter("calendar", "on_closed", "sending_window", "jitter")
_rule_parts = attrgetter(*(field.name for field in fields(Rule)))


def same_schedule(stored: Spec, requested: Spec, *, other_zones: bool = False) -> bool:
    """Return whether a request's schedule fields equal the stored ones.

    `other_zones`: the stored instants were planned with another version of the zone data.
    """
    return (
        _same_start(stored, requested, other_zones=other_zones) and requested.manual == stored.manual
        and requested.timezone == stored.timezone and requested.every == stored.every
        and _adjustments(stored) == _adjustments(requested)
        and _same_cron(stored.cron, requested.cron) and _same_rule(stored.rrule, requested.rrule)
    )


def _same_start(stored: Spec, requested: Spec, *, other_zones: bool) -> bool:
    """Compare the starts.

    A request without a start, or with the start `now`, equals one that was stored so. Rows of release 0.2 don't
    record a missing start and are equal too. A given start is compared by its instant and by its wall time, which
    differs in a gap. The instant of a wall time depends on the zone data. Release 0.2 did not store the wall time
    of a one-shot.
    """
    if requested.start_source == StartSource.STORED:
        return stored.start_source != StartSource.RUN_AT
    if requested.start_source == StartSource.NOW:
        return stored.start_source in (StartSource.NOW, StartSource.STORED)
    same_wall, same_instant = requested.dtstart == stored.dtstart, requested.starts_at == stored.starts_at
    if requested.one_shot and (stored.dtstart is None or requested.dtstart is None):
        same_wall = True
        other_zones = False
    if other_zones and requested.dtstart is not None:
        return same_wall or same_instant
    return same_wall and same_instant


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
