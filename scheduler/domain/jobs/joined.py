"""Find occurrences that a new plan moves to the instant of an emitted event: they need no event of their own."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, islice

from scheduler.domain.jobs.settled import Record
from scheduler.domain.recurrence.moved_days import MICRO, Span, plus
from scheduler.domain.recurrence.planner import Planner
from scheduler.domain.recurrence.ranges import Range, common, complement, union

_MAX_COMPARED = 1_000  # occurrences of a day, one by one
_SAMPLE = 50  # compared instead if there are more: the days of a frequent job look the same


def joined(record: Record, before: Planner, after: Planner) -> list[Range]:
    """Return the nominal instants of unsettled occurrences that move to the instant of an event under `before`."""
    until, ranges = record.settled_until, list[Range]()
    if until is None:
        return ranges
    schedule, end = after.schedule, plus(after.latest_nominal(until), MICRO)

    def emitted(instant: datetime) -> bool:
        return record.includes(instant) and before.planned_of(instant) == instant and schedule.fires_at(instant)

    for first, last in record.ranges or ():
        for part in after.sources(first, min(last, end)):
            at = part.span.at if part.opening is None else part.opening
            if at is not None:
                ranges += part.span.ranges() if emitted(at) else ()
            elif part.span.shift:
                ranges += _shifted(part.span, emitted, record, before)
    return union(ranges)


def _shifted(
    span: Span, emitted: Callable[[datetime], bool], record: Record, before: Planner
) -> Iterator[Range]:
    """Yield the nominal instants of a span that move to the instant of an emitted event."""
    nominals = list(islice(span.nominals(), _MAX_COMPARED + 1))
    if len(nominals) <= _MAX_COMPARED:
        yield from ((at, plus(at, MICRO)) for at in nominals if emitted(plus(at, span.shift)))
        return
    moved = [(plus(first, -span.shift), plus(end, -span.shift)) for first, end in _emitted(span, record, before)]
    for part in span.within(moved):
        if all(emitted(plus(at, span.shift)) for at in islice(part.nominals(), _SAMPLE)):
            yield from part.ranges()


def _emitted(span: Span, record: Record, before: Planner) -> list[Range]:
    """Return the settled instants among a span's moved instants at which `before` had unmoved occurrences."""
    first, last = span.moved_bounds()
    end = plus(last, MICRO)
    settled = complement(record.ranges or (), first, end)
    inside = (part.span for part in before.sources(first, end) if part.opening is None)
    stayed = union(chain.from_iterable(part.ranges() for part in inside if not part.shift and part.at is None))
    return common(stayed, settled)
