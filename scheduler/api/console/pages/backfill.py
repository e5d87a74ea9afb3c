"""Backfill a range of a job after a preview: choose occurrences, and emit them again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.backfill import LONGEST, MOST, backfill_id, backfill_request
from scheduler.api.console.formatting import count, moment_like
from scheduler.api.console.pages.bulk import note_of
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, redirect_to
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import parse_instant, rfc3339
from scheduler.domain.recurrence import zone
from scheduler.postgres.audit_batches import job_statuses
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_PICK = "pick_"
_FAILED = ("dead", "cancelled")


@router.get("/jobs/{job_id}/backfill")
async def backfill_page(request: Request, site: SiteParam, who: Visitor, job_id: UUID) -> Response:
    """Ask for a range, and show its occurrences."""
    check(who, Permission.WRITE)
    row = await site.services.reads.job_row(who, job_id)
    query = dict(request.query_params)
    rows, problems = [], dict[str, str]()
    if query.get("from"):
        try:
            start, end = _range(query, row.job.requested.spec.timezone)
            rows = await _occurrences(site, who, row, start, end)
        except Unprocessable as error:
            problems = {problem.field: problem.problem for problem in error.errors}
    return site.page(request, "backfill.html", {
        "who": who, "page": "jobs", "job": job_view(row), "rows": rows[:MOST], "more": len(rows) > MOST,
        "most": MOST, "tracked": _is_tracked(row), "asked": bool(query.get("from")), "problems": problems,
        "start": query.get("from", ""), "end": query.get("until", ""),
    }, 422 if problems else 200)


@router.post("/jobs/{job_id}/backfill")
async def backfill(site: SiteParam, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Emit the chosen occurrences again."""
    check(who, Permission.WRITE)
    row = await site.services.reads.job_row(who, job_id)
    chosen = sorted(_picked(form))
    listed = await _occurrences(site, who, row, chosen[0], chosen[-1], inclusive=True)
    known = {occurrence["at"]: occurrence for occurrence in listed}
    if not known.keys() >= set(chosen):
        raise Unprocessable([Problem("selection", "has a time that is not an occurrence of the job in the past")])
    new = [at for at in chosen if known[at]["again"] is None]
    if not new:
        return redirect_to(f"/jobs/{job_id}", Flash("Nothing to emit: they were backfilled before", bad=True))
    note = note_of(form)
    await site.services.actions.request_all(who, [backfill_request(row.job, at) for at in new], note)
    return redirect_to(f"/bulk/{note.batch}", Flash(f"{count(len(new), 'occurrence')} emitted again"))


def _is_tracked(row: JobRow) -> bool:
    """Return whether a missing run means that the occurrence was not emitted."""
    return row.job.requested.run is not None


def _picked(form: Mapping[str, str]) -> set[datetime]:
    try:
        chosen = {parse_instant(name.removeprefix(_PICK)) for name in form if name.startswith(_PICK)}
    except ValueError:
        raise Unprocessable([Problem("selection", "has a value that is not a time")]) from None
    if not 0 < len(chosen) <= MOST:
        raise Unprocessable([Problem("selection", f"must have 1 to {MOST} occurrences")])
    return chosen


def _range(query: Mapping[str, str], timezone: str) -> tuple[datetime, datetime]:
    """Return a range in the job's time zone, until now at most. Raises Unprocessable."""
    times = {}
    for name in ("from", "until"):
        text = query.get(name, "").strip()
        if not moment_like(text):
            raise Unprocessable([Problem(name, "must be a date and a time such as 2026-11-20T09:00")])
        times[name] = datetime.fromisoformat(text).replace(tzinfo=zone(timezone)).astimezone(UTC)
    if times["until"] <= times["from"]:
        raise Unprocessable([Problem("until", "must be after from")])
    if times["until"] - times["from"] > LONGEST:
        raise Unprocessable([Problem("until", f"must be at most {LONGEST.days} days after from")])
    return times["from"], times["until"]


async def _occurrences(
    site: Site, who: Identity, row: JobRow, start: datetime, end: datetime, *, inclusive: bool = False
) -> list[dict[str, Any]]:
    """Return past occurrences by the present schedule, with the runs that they had."""
    end = min(end.replace(microsecond=999_999) if inclusive else end, datetime.now(UTC))
    if row.job.requested.spec.manual or start >= end:
        return []
    found = await site.services.reads.occurrences(who, UUID(row.job.id), count=MOST + 1, start=start, end=end)
    wanted = RunFilter(job_id=row.job.id, since=start, until=end)
    runs = {run.due_at: run for run in (await site.services.reads.runs(who, wanted, MOST)).items}
    ids = {datetime.fromisoformat(item.utc): backfill_id(row.job, datetime.fromisoformat(item.utc))
           for item in found.items}
    earlier = await site.services.database.search(lambda at: job_statuses(at, list(ids.values())))
    return [{"at": at, "run": runs.get(at), "key": _PICK + rfc3339(at), "id": job_id, "again": earlier.get(job_id),
             "proposed": _is_tracked(row) and (at not in runs or runs[at].status in _FAILED)}
            for at, job_id in ids.items()]
