"""The form for new and edited jobs, with a preview of occurrences; input is kept after a mistake."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.date_description import MONTHS, WEEKDAYS
from scheduler.api.console.form import UNITS, read_form
from scheduler.api.console.form_choices import NAMES, ON_CLOSED, PLACE_OF, PLACES
from scheduler.api.console.form_fields import ParsedForm
from scheduler.api.console.form_preview import occurrences_of, preview_context
from scheduler.api.console.form_values import values_of
from scheduler.api.console.payload_check import payload_problems
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, redirect_to
from scheduler.api.console.targets.forms import TARGET_FORMS
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Conflict, NotFound, PreconditionFailed, Unprocessable
from scheduler.domain.errors import Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.message_parser import parse_command
from scheduler.domain.offer_tenants import usable_offers
from scheduler.domain.recurrence import resolve_fields, same_schedule, zone_names
from scheduler.domain.recurrence.adjustment_fields import spec_fields
from scheduler.domain.schedule_fields import ADJUSTMENT_FIELDS
from scheduler.domain.targets.pools import split_pool
from scheduler.domain.targets.target import TARGETS
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.jobs import job_etag, job_view, request_fields

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_CALENDARS_OFFERED = 200
_CHANGED = (
    "The job was changed by someone else. Your input is still here: compare, and save again to replace the job."
)


def _defaults(who: Identity) -> dict[str, str]:
    """Return the values of an empty form."""
    next_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None) + timedelta(hours=1)
    return {
        "when": "days",
        "days_unit": "week",
        "days_count": "1",
        **{f"weekday_{day}": "on" for day in range(5)},
        "at": "09:00",
        "timezone": "UTC",
        "run_at": next_hour.isoformat(),
        "window_from": "09:00",
        "window_to": "17:00",
        **{f"window_day_{day}": "on" for day in range(5)},
        "every_count": "15",
        "every_unit": "minute",
        "then": "message",
        "payload": "{}",
        "tenant": who.tenant or "default",
    }


async def _form_page(
    request: Request, site: Site, who: Identity, values: Mapping[str, str], problems: Mapping[str, str], *,
    job: JobRow | None = None, etag: str = "", status: int = 200, problem: str | None = None,
) -> Response:
    """Show the form with values and problems."""
    all_values = dict.fromkeys(NAMES, "") | dict(values)
    view = None if job is None else job_view(job)
    context = {
        "who": who,
        "page": "jobs",
        "values": all_values,
        "problems": dict(problems),
        "job": view,
        "etag": etag,
        "problem": problem,
        "zones": sorted(zone_names()),
        "weekdays": WEEKDAYS,
        "months": MONTHS,
        "places": PLACES,
        "place_of": PLACE_OF,
        "units": list(UNITS),
        "targets": TARGET_FORMS,
        "offers": await _offers(site, who),
        "on_closed": ON_CLOSED,
        "calendars": await _calendar_names(site, who, values.get("tenant")),
        **await preview_context(site, who, all_values | ({} if view is None else {"job_id": str(view.id)})),
    }
    return site.page(request, "job_form.html", context, status)


async def _offers(site: Site, who: Identity) -> dict[str, list[str]]:
    """Return the names that workers currently offer to the visitor, by kind of target."""
    pulse = (await site.broadcaster.fresh()).pulse
    offers = {
        str(offer) for worker in (pulse.workers if pulse else ())
        for offer in (worker["offers"] if who.tenant is None
                     else usable_offers(worker["offers"], worker["offer_tenants"], who.tenant))
    }
    return {
        kind: sorted({split_pool(offer.removeprefix(target.key))[0]
                      for offer in offers if offer.startswith(target.key)})
        for kind, target in TARGETS.items() if target.by_name
    }


async def _calendar_names(site: Site, who: Identity, tenant: str | None) -> list[str]:
    """Return the names of the calendars that jobs of a tenant can use."""
    try:
        page = await site.services.calendars.list(who, tenant or None, _CALENDARS_OFFERED)
    except (Rejected, Unprocessable):
        return []
    return sorted({calendar.name for calendar in page.items})


@router.get("/jobs/new")
async def new_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Show an empty form, or a copy of the job that `from` names."""
    check(who, Permission.WRITE)
    source = request.query_params.get("from")
    if not source:
        return await _form_page(request, site, who, _defaults(who), {})
    try:
        row = await site.services.reads.job_row(who, UUID(source))
    except ValueError:
        raise NotFound("No job has this id.") from None
    return await _form_page(request, site, who, _copied(values_of(request_fields(row))), {})


def _copied(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a copy: it has a new name and no start."""
    copy = dict(values) | {"starts": ""}
    return copy | ({"name": f"{copy['name']} (copy)"[:200]} if copy.get("name") else {})


@router.get("/jobs/{job_id}/edit")
async def edit_page(request: Request, site: SiteParam, who: Visitor, job_id: UUID) -> Response:
    """Show a job in the form."""
    check(who, Permission.WRITE)
    row = await site.services.reads.job_row(who, job_id)
    return await _form_page(request, site, who, values_of(request_fields(row)), {}, job=row, etag=job_etag(row))


@router.post("/jobs/preview")
async def preview(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:
    """Show the next occurrences for the current input, and its problems."""
    context = await preview_context(site, who, form)
    if form.get("job_type") and not context["preview_problems"]:
        read = read_form(form)
        try:
            placeholder_id = {"id": "00000000-0000-0000-0000-000000000000"}
            parse_command("request", json.dumps(read.fields).encode(), fixed_fields=placeholder_id,
                          max_payload_bytes=site.services.settings.max_payload_bytes)
        except Rejected as rejected:
            read.problems |= {problem.field: problem.problem for problem in rejected.problems}
        context["preview_problems"] = read.problems | await _payload_problems(site, who, read)
    return site.part(request, "preview", who, context)


@router.post("/jobs/new")
async def create(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:
    """Create a job from the form, or show the form again with its problems."""
    read = read_form(form)
    problems = await _save(site, who, read, None, "")
    if isinstance(problems, str):
        name = read.fields.get("name") or read.fields.get("job_type")
        return redirect_to(f"/jobs/{problems}", Flash(f"Created: {name}"))
    return await _form_page(request, site, who, form, problems, status=422)


@router.post("/jobs/{job_id}/edit")
async def edit(request: Request, site: SiteParam, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Replace a job with the form, unless it was changed since the form was opened."""
    row = await site.services.reads.job_row(who, job_id)
    read = read_form(form, request_fields(row))
    if form.get("starts") == values_of(request_fields(row)).get("starts") and not _same_schedule(read, row):
        await _continue_schedule(site, who, read, row)
    try:
        problems = await _save(site, who, read, job_id, form.get("etag", ""))
    except PreconditionFailed:
        return await _form_page(
            request, site, who, form, {}, job=row, etag=job_etag(row), status=412, problem=_CHANGED
        )
    if isinstance(problems, str):
        return redirect_to(f"/jobs/{job_id}", Flash("Saved", then=f"/jobs/{job_id}/trigger", label="Run now"))
    return await _form_page(request, site, who, form, problems, job=row, etag=form.get("etag", ""), status=422)


def _same_schedule(read: ParsedForm, row: JobRow) -> bool:
    """Return whether a form has the stored schedule, which then continues unchanged."""
    try:
        adjustments = spec_fields({name: read.fields.get(name) for name in ADJUSTMENT_FIELDS})
        spec = resolve_fields(read.fields, datetime.now(UTC), keep_wall=bool(adjustments))
        spec = replace(spec, **adjustments)
    except Rejected:
        return False
    return row.job.definition is not None and same_schedule(row.job.definition.spec, spec)


async def _continue_schedule(site: Site, who: Identity, read: ParsedForm, row: JobRow) -> None:
    """Start a changed schedule at its next occurrence: an edit does not emit past occurrences.

    Its rhythm then counts from that occurrence. Rules that count from the first occurrence are unchanged.
    """
    fields, now, definition = read.fields, datetime.now(UTC), row.job.definition
    started = definition is not None and definition.spec.starts_at is not None and definition.spec.starts_at <= now
    rule = str(fields.get("rrule") or "").upper()
    recurs = rule or fields.get("cron") or fields.get("every")
    if read.problems or not started or not recurs or any(word in rule for word in ("COUNT", "DATE", "DTSTART")):
        return
    ahead = await occurrences_of(site, who, fields | {"count": 1, "after": rfc3339(now)})
    if ahead and not ahead[0].note:
        fields["run_at"] = ahead[0].utc


async def _save(site: Site, who: Identity, read: ParsedForm, job_id: UUID | None, etag: str) -> str | dict[str,
                                                                                                          str]:
    """Store the request; return the job's id, or its problems by field."""
    if problems := read.problems or await _payload_problems(site, who, read):
        return problems
    body = json.dumps(read.fields).encode()
    try:
        if job_id is None:
            result = await site.services.actions.create(who, body)
        else:
            result = await site.services.actions.replace(who, job_id, body, [etag.strip('"')] if etag else None)
    except Rejected as rejected:
        return {problem.field: problem.problem for problem in rejected.problems}
    except Unprocessable as error:
        return {problem.field: problem.problem for problem in error.errors}
    except Conflict as error:
        return {"id": error.detail}
    return result.row.job.id


async def _payload_problems(site: Site, who: Identity, read: ParsedForm) -> dict[str, str]:
    """Return the payload fields that the type's handlers would reject; only for jobs without a target."""
    job_type, payload = read.fields.get("job_type"), read.fields.get("payload")
    if not job_type or "target" in read.fields or "payload" in read.problems:
        return {}
    offer = await site.services.reads.handler_offer(who, str(job_type))
    schema = offer and offer.parameters
    return await site.services.compute.run(lambda: payload_problems(schema, payload)) if schema else {}


@router.post("/jobs/try")
async def try_target(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:
    """Test the form's target with a separate one-shot job that runs now, without retries."""
    read = read_form(form | {"when": "once", "run_at": rfc3339(datetime.now(UTC)), "max_attempts": "1"})
    for name in ("rrule", "paused"):
        read.fields.pop(name, None)
    read.fields |= {
        "name": f"Test of {read.fields.get('name') or read.fields.get('job_type') or 'a target'}"[:200],
        "job_type": read.fields.get("job_type") or "test",
    }
    problems = await _save(site, who, read, None, "")
    if isinstance(problems, str):
        return site.part(request, "tried", who, {"job_id": problems})
    return site.part(request, "preview", who, {"preview": [], "description": "", "preview_zone": "UTC",
                                               "adjustments": "", "preview_problems": problems})
