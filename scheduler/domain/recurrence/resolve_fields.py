"""Resolve the schedule fields of a request, or of a job without a schedule."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.recurrence.resolve import resolve
from scheduler.domain.recurrence.schedule import NEVER
from scheduler.domain.recurrence.spec import Spec, StartSource
from scheduler.domain.recurrence.zones import clock, unknown_zone
from scheduler.domain.schedule_fields import RULE_FIELDS, SCHEDULE_FIELDS


def resolve_fields(fields: Mapping[str, Any], stored_at: datetime, *, keep_wall: bool = False) -> Spec:
    """Return the spec of a request's schedule fields; ignores other fields. Raises Rejected with every problem."""
    if fields.get("manual"):
        return _manual(fields)
    rule = {name: fields.get(name) for name in RULE_FIELDS}
    return resolve(**rule, stored_at=stored_at, keep_wall=keep_wall)


def _manual(fields: Mapping[str, Any]) -> Spec:
    """Return the spec of a job without a schedule."""
    timezone = "UTC" if fields.get("timezone") is None else fields["timezone"]
    given = [name for name in SCHEDULE_FIELDS if name != "timezone" and fields.get(name) is not None]
    problems = []
    if given:
        problem = f"give either manual or {', '.join(given)}: a manual job has no schedule"
        problems = [Problem(name, problem) for name in ("manual", *given)]
    try:
        name = clock(timezone).name
    except KeyError:
        problems.append(Problem("timezone", unknown_zone(timezone)))
    if problems:
        raise Rejected(problems)
    return Spec(None, None, None, name, None, NEVER, None, StartSource.MANUAL.value)
