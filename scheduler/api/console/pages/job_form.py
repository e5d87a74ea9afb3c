"""New and edit: what people fill in, the next occurrences while they type, and nothing lost on a mistake."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.date_description import MONTHS, WEEKDAYS
from scheduler.api.console.form import METHODS, UNITS, ParsedForm, read_form, read_schedule
from scheduler.api.console.form_choices import NAMES, PLACE_OF, PLACES
from scheduler.api.console.form_values import values_of
from scheduler.api.console.schedule_description import in_words
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, The, Visitor, redirect_to
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Conflict, PreconditionFailed, Unprocessable
from scheduler.domain.errors import Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.message_parser import parse_command
from scheduler.domain.offer_tenants import usable_offers
from scheduler.domain.recurrence import resolve, same_schedule, zone_names
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.jobs import job_etag, job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_SHOWN = 10
_SCHEDULE = ("run_at", "rrule", "cron", "every", "timezone", "after", "count")
_COMMAND = "command."  # how a worker says that it offers one
_CHANGED = (
    "The job was changed by someone else. Your input is still here: compare, and save again to replace the job."
)


def _usual(who: Identity) -> dict[str, str]:
    """Return what an empty form says."""
    soon = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None) + timedelta(hours=1)
    return {
        "when": "days",
        "days_unit": "week",
        "days_count": "1",
        **{f"weekday_{day}": "on" for day in range(5)},
        "at": "09:00",
        "timezone": "UTC",
        "run_at": soon.isoformat(),
        "every_count": "15",
        "every_unit": "minute",
        "then": "message",
        "payload": "{}",
        "tenant": who.tenant or "default",
    }


async def _form_page(
    request: Request, the: Site, who: Identity, values: Mapping[str, str], problems: Mapping[str, str], *,
    job: JobRow | None = None, etag: str = "", status: int = 200, problem: str | None = None,
) -> Response:
    """Show the form with these values, and what is wrong with them."""
    shown = dict.fromkeys(NAMES, "") | dict(values)
    view = None if job is None else job_view(job)
    context = {
        "who": who,
        "page": "jobs",
        "values": shown,
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
        "methods": METHODS,
        "commands": await _commands(the, who),
        **await _preview(the, who, values),
    }
    return the.page(request, "job_form.html", context, status)


async def _commands(the: Site, who: Identity) -> list[str]:
    """Return the commands that workers offer now, to the reader's tenant if it has one."""
    pulse = (await the.broadcaster.fresh()).pulse
    offers = {
        str(each) for worker in (pulse.workers if pulse else ())
        for each in (worker["offers"] if who.tenant is None
                     else usable_offers(worker["offers"], worker["offer_tenants"], who.tenant))
    }
    return sorted(each.removeprefix(_COMMAND) for each in offers if each.startswith(_COMMAND))


async def _preview(the: Site, who: Identity, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the next occurrences of the schedule in a form, or what is wrong with it."""
    read = read_schedule(form)
    fields = read.fields | {"count": _SHOWN} | ({} if "run_at" in read.fields and form.get("when") == "once" else
                                                 {"after": rfc3339(datetime.now(UTC))})
    problems = dict(read.problems)
    occurrences: list[Any] = []
    if not problems:
        try:
            page = await the.services.reads.preview(who, json.dumps(fields).encode())
            occurrences = list(page.items)
        except Rejected as rejected:
            problems = {each.field: each.problem for each in rejected.problems}
        except Unprocessable as error:
            problems = {each.field: each.problem for each in error.errors}
    return {
        "preview": occurrences,
        "preview_problems": problems,
        "said": "" if problems else in_words(read.fields),
        "preview_zone": read.fields.get("timezone", "UTC"),
    }


@router.get("/jobs/new")
async def new_page(request: Request, the: The, who: Visitor) -> Response:
    """Show an empty form."""
    check(who, Permission.WRITE)
    return await _form_page(request, the, who, _usual(who), {})


@router.get("/jobs/{job_id}/edit")
async def edit_page(request: Request, the: The, who: Visitor, job_id: UUID) -> Response:
    """Show a job in the form."""
    check(who, Permission.WRITE)
    row = await the.services.reads.job_row(who, job_id)
    return await _form_page(request, the, who, values_of(stored(row)), {}, job=row, etag=job_etag(row))


def stored(row: JobRow) -> dict[str, Any]:
    """Return a job's request as it is stored; what was not asked for is not there."""
    asked = row.job.definition
    view = job_view(row)
    known = view.model_dump(mode="json", exclude_none=True, exclude={"payload"}) | {"payload": view.payload}
    if asked is not None and asked.priority is None:
        known.pop("priority", None)
    if known.get("route") is None:
        known.pop("route", None)
    return known


@router.post("/jobs/preview")
async def preview(request: Request, the: The, who: Visitor, form: Form) -> Response:
    """Show the next occurrences of what is being typed, and what is wrong with it so far."""
    context = await _preview(the, who, form)
    if form.get("job_type") and not context["preview_problems"]:
        read = read_form(form)
        try:
            beside = {"id": "00000000-0000-0000-0000-000000000000"}
            parse_command("request", json.dumps(read.fields).encode(), fixed_fields=beside,
                          max_payload_bytes=the.services.settings.max_payload_bytes)
        except Rejected as rejected:
            read.problems |= {each.field: each.problem for each in rejected.problems}
        context["preview_problems"] = read.problems
    return the.part(request, "preview", who, context)


@router.post("/jobs/new")
async def create(request: Request, the: The, who: Visitor, form: Form) -> Response:
    """Make a job of the form, or show it again with what is wrong."""
    read = read_form(form)
    problems = await _save(the, who, read, None, "")
    if isinstance(problems, str):
        name = read.fields.get("name") or read.fields.get("job_type")
        return redirect_to(f"/jobs/{problems}", Flash(f"Made: {name}"))
    return await _form_page(request, the, who, form, problems, status=422)


@router.post("/jobs/{job_id}/edit")
async def edit(request: Request, the: The, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Put the form in a job's place, unless somebody else changed it meanwhile."""
    row = await the.services.reads.job_row(who, job_id)
    read = read_form(form, stored(row))
    if form.get("starts") == values_of(stored(row)).get("starts") and not _same_schedule(read, row):
        await _go_on(the, who, read, row)
    try:
        problems = await _save(the, who, read, job_id, form.get("etag", ""))
    except PreconditionFailed:
        return await _form_page(
            request, the, who, form, {}, job=row, etag=job_etag(row), status=412, problem=_CHANGED
        )
    if isinstance(problems, str):
        return redirect_to(f"/jobs/{job_id}", Flash("Saved", then=f"/jobs/{job_id}/trigger", label="Run now"))
    return await _form_page(request, the, who, form, problems, job=row, etag=form.get("etag", ""), status=422)


def _same_schedule(read: ParsedForm, row: JobRow) -> bool:
    """Tell whether a form asks for the stored schedule, which then goes on by itself."""
    fields: dict[str, Any] = {
        name: read.fields.get(name) for name in ("run_at", "rrule", "cron", "every", "timezone")
    }
    try:
        spec = resolve(**fields, stored_at=datetime.now(UTC))
    except Rejected:
        return False
    return row.job.definition is not None and same_schedule(row.job.definition.spec, spec)


async def _go_on(the: Site, who: Identity, read: ParsedForm, row: JobRow) -> None:
    """Have a schedule that has begun go on with its next occurrence: an edit makes up for nothing that has passed.

    The next occurrence keeps the rhythm as the first did, except where the rule counts from the first.
    """
    fields, now, asked = read.fields, datetime.now(UTC), row.job.definition
    begun = asked is not None and asked.spec.starts_at is not None and asked.spec.starts_at <= now
    rule = str(fields.get("rrule") or "").upper()
    recurs = rule or fields.get("cron") or fields.get("every")
    if read.problems or not begun or not recurs or any(word in rule for word in ("COUNT", "DATE", "DTSTART")):
        return
    ahead = await _preview_of(the, who, fields | {"count": 1, "after": rfc3339(now)})
    if ahead and not ahead[0].note:
        fields["run_at"] = ahead[0].utc


async def _preview_of(the: Site, who: Identity, fields: Mapping[str, Any]) -> list[Any]:
    """Return the occurrences of a schedule, none where something is wrong with it."""
    schedule = {name: fields[name] for name in _SCHEDULE if name in fields}
    try:
        return list((await the.services.reads.preview(who, json.dumps(schedule).encode())).items)
    except (Rejected, Unprocessable):
        return []


async def _save(the: Site, who: Identity, read: ParsedForm, job_id: UUID | None, etag: str) -> str | dict[str,
                                                                                                          str]:
    """Store the request; return the job's id, or what is wrong by field."""
    if read.problems:
        return read.problems
    body = json.dumps(read.fields).encode()
    try:
        if job_id is None:
            done = await the.services.actions.create(who, body)
        else:
            done = await the.services.actions.replace(who, job_id, body, [etag.strip('"')] if etag else None)
    except Rejected as rejected:
        return {each.field: each.problem for each in rejected.problems}
    except Unprocessable as error:
        return {each.field: each.problem for each in error.errors}
    except Conflict as error:
        return {"id": error.detail}
    return done.row.job.id


@router.post("/jobs/try")
async def try_target(request: Request, the: The, who: Visitor, form: Form) -> Response:
    """Have a worker do what the form says, once and now, as a job of its own that is tried but once."""
    read = read_form(form | {"when": "once", "run_at": rfc3339(datetime.now(UTC)), "max_attempts": "1"})
    read.fields.pop("rrule", None)
    read.fields |= {
        "name": f"Test of {read.fields.get('name') or read.fields.get('job_type') or 'a target'}"[:200],
        "job_type": read.fields.get("job_type") or "test",
    }
    problems = await _save(the, who, read, None, "")
    if isinstance(problems, str):
        return the.part(request, "tried", who, {"job_id": problems})
    return the.part(request, "preview", who, {"preview": [], "said": "", "preview_zone": "UTC",
                                              "preview_problems": problems})
