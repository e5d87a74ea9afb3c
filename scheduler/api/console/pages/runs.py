"""The list of runs, and one run."""

from datetime import UTC, datetime
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import bulk
from scheduler.api.console.lists import RUN_FILTERS, address, filters, in_words
from scheduler.api.console.run_story import run_context
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, The, Visitor, may, to
from scheduler.api.console.words import count
from scheduler.api.identity import Need
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.times import parse_instant
from scheduler.postgres.runs.lists import RunFilter

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_RETRIED = ("dead", "cancelled")


def wanted(found: dict[str, str]) -> tuple[RunFilter, dict[str, str]]:
    """Return the filter for the service, and what could not be read of it, by field."""
    problems: dict[str, str] = {}
    times: dict[str, datetime] = {}
    for name in ("since", "until"):
        if name in found:
            try:
                text = found[name]
                times[name] = parse_instant(text if text.endswith("Z") or "+" in text else f"{text}Z")
            except ValueError as error:
                problems[name] = str(error)
    job_id = found.get("job_id")
    if job_id is not None:
        try:
            job_id = str(UUID(job_id))
        except ValueError:
            problems["job_id"] = "is not the id of a job"
            job_id = None
    wanted = RunFilter(status=found.get("status"), job_type=found.get("job_type"), tenant=found.get("tenant"),
                       job_id=job_id, since=times.get("since"), until=times.get("until"))
    return wanted, problems


@router.get("/runs")
async def runs_page(request: Request, the: The, who: Visitor) -> Response:
    """List runs."""
    given = dict(request.query_params)
    found = filters(given, RUN_FILTERS, "runs")
    asked, problems = wanted(found)
    ask = None
    if given.get("ask") == "retry" and found.get("status") in _RETRIED and may(who, Need.WRITE):
        ask = await bulk.ask_runs(the.services, who, asked, found)
    page = await the.services.reads.runs(who, asked, after=given.get("after") or None)
    context = {
        "who": who,
        "page": "runs",
        "runs": page.items,
        "filters": dict.fromkeys(RUN_FILTERS) | found,
        "filtered": bool(found),
        "said": in_words(found),
        "here": address("/runs", found),
        "problems": problems,
        "ask": ask,
        "show_job": True,
        "next": address("/runs", found, {"after": page.next}) if page.next else None,
        "first": address("/runs", found) if given.get("after") else None,
    }
    return the.page(request, "runs.html", context)


@router.post("/runs/retry")
async def retry_all(the: The, who: Visitor, form: Form) -> Response:
    """Give all runs that match another chance."""
    found = filters(form, RUN_FILTERS, "runs")
    asked, problems = wanted(found)
    if problems or found.get("status") not in _RETRIED:
        raise Unprocessable([Problem("status", "must be dead or cancelled: only such runs can be tried again")])
    number = await the.services.actions.all_runs(who, asked)
    return to(address("/runs", found), Flash(f"{count(number, 'run')} tried again"))


@router.get("/runs/{event_id}")
async def run_page(request: Request, the: The, who: Visitor, event_id: UUID) -> Response:
    """Show one run with its attempts; while it is open the page is live."""
    run = await the.services.reads.run(who, event_id)
    live = f"run:{event_id}" if run.status in ("delivered", "running", "waiting", "dead") else None
    context = run_context(run, datetime.now(UTC)) | {"who": who, "page": "runs", "live": live}
    return the.page(request, "run.html", context)


@router.post("/runs/{event_id}/retry")
async def retry(request: Request, the: The, who: Visitor, form: Form, event_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Give a run another chance."""
    await the.services.actions.retry(who, event_id)
    return to(f"/runs/{event_id}", Flash("It is tried again, at once"))
