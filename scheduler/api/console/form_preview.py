"""The preview next to the job form: the next occurrences, and why some are moved or skipped."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from scheduler.api.console.adjustment_description import describe_adjustments
from scheduler.api.console.form import read_schedule
from scheduler.api.console.occurrence_rows import preview_rows
from scheduler.api.console.schedule_description import describe_schedule
from scheduler.api.console.site import Site
from scheduler.api.identity import Identity
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.schedule_fields import RULE_FIELDS
from scheduler.views.occurrences import OccurrenceView, PreviewPage

_PREVIEWED = 10
_SCHEDULE = (*RULE_FIELDS, "manual", "after", "count")


async def preview_context(site: Site, who: Identity, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the next occurrences of the schedule in a form, or its problems."""
    read = read_schedule(form)
    fields = read.fields | {"count": _PREVIEWED} | _owner(form)
    if "run_at" not in read.fields or form.get("when") not in ("once", "now"):
        fields["after"] = rfc3339(datetime.now(UTC))
    problems, page = dict(read.problems), PreviewPage([])
    if not problems:
        try:
            page = await site.services.reads.preview(who, json.dumps(fields).encode())
        except Rejected as rejected:
            problems = {problem.field: problem.problem for problem in rejected.problems}
        except Unprocessable as error:
            problems = {problem.field: problem.problem for problem in error.errors}
    return {
        "preview": preview_rows(page),
        "preview_problems": problems,
        "description": "" if problems else describe_schedule(read.fields),
        "adjustments": "" if problems else describe_adjustments(read.fields),
        "preview_zone": read.fields.get("timezone", "UTC"),
    }


def _owner(form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that select the calendar and the jitter of a stored job."""
    owner = {"tenant": form["tenant"]} if form.get("tenant") else {}
    try:
        return owner | ({"id": str(UUID(form["job_id"]))} if form.get("job_id") else {})
    except ValueError:
        return owner


async def occurrences_of(site: Site, who: Identity, fields: Mapping[str, Any]) -> Sequence[OccurrenceView]:
    """Return the nominal occurrences of a schedule, none if it is invalid."""
    schedule = {name: fields[name] for name in _SCHEDULE if name in fields}
    try:
        return list((await site.services.reads.preview(who, json.dumps(schedule).encode())).items)
    except (Rejected, Unprocessable):
        return []
