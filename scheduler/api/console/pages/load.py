"""The load ahead: a heat map of the coming seven days by hour, and the jobs of one hour."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.formatting import count, local
from scheduler.api.console.list_filters import address, parse_filters
from scheduler.api.console.load_ahead import HOURS, Load, compute_load
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam, Visitor
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import parse_instant, rfc3339
from scheduler.domain.recurrence import local_time, zone_names
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.jobs.load_rows import LoadRows, load_rows

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_FILTERS = ("job_type", "tenant", "zone")
_LARGEST, _LISTED = 8, 50
_LEVELS = 5
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class HourCell:
    """One hour of the heat map."""

    at: datetime
    number: int
    level: int  # 0 for nothing, up to _LEVELS for the most
    href: str
    title: str


@router.get("/load")
async def load_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Show the load of the coming seven days."""
    check(who, Permission.READ)
    filters = parse_filters(request.query_params, _FILTERS)
    zone = filters.get("zone", "UTC")
    if zone not in zone_names():
        raise Unprocessable([Problem("zone", f"is not a time zone: {zone[:40]!r}")])
    load = await _load(site, who, filters, zone)
    hours = load.hours
    return site.page(request, "load.html", {
        "who": who, "page": "load", "filters": dict.fromkeys(_FILTERS) | filters, "zone": zone, "load": load,
        "filtered": bool(filters.keys() - {"zone"}), "days": _days(load, hours, filters, zone),
        "total": sum(hours), "peak": max(hours), "types": _links(load.types, "job_type", filters),
        "tenants": _links(load.tenants, "tenant", filters) if who.all_tenants else [],
        "hour": _hour(request.query_params.get("at", ""), load, filters, zone),
        "jobs_counted": count(round(load.scale * len(load.jobs)), "job"),
    })


async def _load(site: Site, who: Identity, filters: dict[str, str], zone: str) -> Load:
    """Return the load that the visitor may see, from the beginning of the present hour in a zone."""
    tenant, visible = visible_tenant(who, filters.get("tenant"))
    here = local_time(datetime.now(UTC), zone).replace(minute=0, second=0, microsecond=0)
    start = here.astimezone(UTC)
    if not visible:
        return compute_load(LoadRows([], {}), start)
    wanted = JobFilter(job_type=filters.get("job_type"), tenant=tenant)

    async def query() -> Load:
        rows = await site.services.database.search(lambda at: load_rows(at, wanted))
        return await site.services.compute.run(lambda: compute_load(rows, start))

    return await site.loads.get((wanted, start), query)


def _days(
    load: Load, hours: Sequence[int], filters: dict[str, str], zone: str
) -> list[tuple[date, list[HourCell | None]]]:
    """Return the hours by local day; None for hours of a day that are not in the seven days."""
    most = max(hours)
    days: dict[date, list[HourCell | None]] = {}
    for hour, number in enumerate(hours):
        at = load.start + hour * _HOUR
        here = local_time(at, zone)
        cell = HourCell(at, number, _level(number, most), address("/load", filters, {"at": rfc3339(at)}) + "#hour",
                        f"{local(at, zone)}: {'' if load.exact else 'about '}{number:,}")
        days.setdefault(here.date(), [None] * 24)[here.hour] = cell
    return list(days.items())


def _level(number: int, most: int) -> int:
    return 0 if not number else max(1, -(-_LEVELS * number // most))


def _links(
    largest: Sequence[tuple[str, int]], by: str, filters: dict[str, str]
) -> list[tuple[str, int, str]]:
    """Return the types or tenants with the most occurrences, and the addresses of their heat maps."""
    return [(name, number, address("/load", filters, {by: name})) for name, number in largest[:_LARGEST]]


def _hour(text: str, load: Load, filters: dict[str, str], zone: str) -> dict[str, Any] | None:
    """Return one hour with its jobs; None without one, or if it is not in the seven days."""
    if not text:
        return None
    try:
        at = parse_instant(text)
    except ValueError:
        raise Unprocessable([Problem("at", "must be a time such as 2026-11-20T09:00:00Z")]) from None
    number = (at - load.start) // _HOUR
    if not 0 <= number < HOURS:
        return None
    jobs = load.of_hour(number)
    span = {"from": rfc3339(at), "until": rfc3339(at + _HOUR)}
    wanted = {name: value for name, value in filters.items() if name != "zone"}
    return {
        "title": f"{local(at, zone)} to {local_time(at + _HOUR, zone):%H:%M}", "number": load.hours[number],
        "types": load.largest("job_type", number)[:_LARGEST], "tenants": load.largest("tenant", number)[:_LARGEST],
        "jobs": jobs[:_LISTED], "more": len(jobs) - _LISTED,
        "next_jobs": address("/jobs", wanted, {"sort": "next"}, span),
    }
