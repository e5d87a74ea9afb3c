"""Bulk actions on matching or selected jobs: what each changed, its progress, and undo."""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.actions import ActionNote
from scheduler.api.console import bulk_actions
from scheduler.api.console.batch_summary import DONE, batch_context, batch_head
from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import JOB_FILTERS, address, check_filters, parse_filters
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, SiteParam, Visitor, back, redirect_to
from scheduler.api.identity import Permission, check
from scheduler.api.problems import Unprocessable
from scheduler.commands.undo_batch import UNDO
from scheduler.domain.errors import Problem
from scheduler.domain.messages import BULK_VERBS
from scheduler.postgres.jobs.lists import JobFilter, rows_of_jobs

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
MAX_REASON = 200
_PICK = "pick_"
_MAX_PICKED = 200


@router.post("/jobs/bulk")
async def bulk_jobs(site: SiteParam, who: Visitor, form: Form) -> Response:
    """Pause, resume or cancel all matching jobs."""
    action, filters = _action(form), parse_filters(form, JOB_FILTERS)
    check_filters(filters, "jobs")
    if not filters:
        raise Unprocessable([Problem("action", "needs a filter")])
    note = note_of(form)
    number = 0
    for narrowed in bulk_actions.narrow_filters(action, JobFilter(**filters)):
        number += await site.services.actions.all_jobs(who, action, narrowed, note=note)
    rest = {name: value for name, value in filters.items() if name != "status"}
    return _done(address("/jobs", rest), action, number, note)


@router.post("/jobs/selected")
async def selected_jobs(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:
    """Ask, and then pause, resume or cancel the selected jobs."""
    check(who, Permission.WRITE)
    action, ids = _action(form), _picked(form)
    here = form.get("here") or back(request, "/jobs")
    if form.get("sure"):
        note = note_of(form)
        return _done(here, action, await site.services.actions.chosen_jobs(who, action, ids, note), note)
    rows = await site.services.database.read(lambda at: rows_of_jobs(at, map(str, ids), who.tenant))
    chosen = [row.id for row in rows if row.status in BULK_VERBS[action].changes]
    return site.page(request, "selected.html", {
        "who": who, "page": "jobs", "action": action, "chosen": chosen, "others": len(ids) - len(chosen),
        "names": await site.services.reads.job_names(chosen), "here": here, "verb": BULK_VERBS[action],
        "counted": count(len(chosen), "job"),
    })


@router.get("/bulk/{batch}")
async def bulk_page(request: Request, site: SiteParam, who: Visitor, batch: UUID) -> Response:
    """Show the jobs or runs that a bulk action changed, with their current statuses."""
    context = await batch_context(site, who, batch)
    page = "runs" if context["of_runs"] else "jobs"
    return site.page(request, "bulk.html", context | {"who": who, "page": page})


@router.get("/bulk/{batch}/progress")
async def bulk_progress(request: Request, site: SiteParam, who: Visitor, batch: UUID) -> Response:
    """Return the progress for the script of an open page."""
    return site.part(request, "bulk_progress", who, await batch_context(site, who, batch))


@router.post("/bulk/{batch}/undo")
async def undo(request: Request, site: SiteParam, who: Visitor, form: Form, batch: UUID) -> Response:
    """Undo a bulk action for the jobs that have not changed since."""
    check(who, Permission.WRITE)
    head = await batch_head(site, who, batch)
    note = note_of(form)
    number = await site.services.actions.undo_batch(who, batch, note)
    text = "Nothing to undo: the jobs were changed since"
    if number:
        text = f"{count(number, 'job')} {DONE[UNDO[head.action]]}"
    shows = f"/bulk/{note.batch}" if number else None
    return redirect_to(back(request, f"/bulk/{batch}"), Flash(text, bad=not number, shows=shows))


def note_of(form: Mapping[str, str]) -> ActionNote:
    """Return the note of a new bulk action, with the reason in the form."""
    return ActionNote(uuid4(), form.get("reason", "").strip()[:MAX_REASON] or None)


def _action(form: Mapping[str, str]) -> str:
    action = form.get("action", "")
    if action not in BULK_VERBS:
        raise Unprocessable([Problem("action", f"must be one of {', '.join(BULK_VERBS)}")])
    return action


def _picked(form: Mapping[str, str]) -> Sequence[UUID]:
    try:
        ids = [UUID(name.removeprefix(_PICK)) for name in form if name.startswith(_PICK)]
    except ValueError:
        raise Unprocessable([Problem("selection", "has an id that is not a UUID")]) from None
    if not 0 < len(ids) <= _MAX_PICKED:
        raise Unprocessable([Problem("selection", f"must have 1 to {_MAX_PICKED} jobs")])
    return ids


def _done(here: str, action: str, number: int, note: ActionNote) -> Response:
    page = f"/bulk/{note.batch}"
    text = bulk_actions.done_message(action, number)
    return redirect_to(here, Flash(text, then=f"{page}/undo", shows=page) if number else Flash(text))


