"""Find anything: ids of jobs and runs, parts of names, types, calendars, and values in payloads."""

import asyncio
import re
from dataclasses import dataclass
from uuid import UUID

from scheduler.api.console.list_filters import address
from scheduler.api.console.site import Site
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import NotFound
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.jobs.search import FoundJob, jobs_with_name, jobs_with_payload

MOST = 20  # of each kind
LONGEST = 200
_PAYLOAD = re.compile(r"payload\.([^:=\s]{1,100})[:=](.{1,100})")
_KINDS = ("run", "job", "type", "calendar")


@dataclass(frozen=True, slots=True)
class Match:
    """Something found: its page, its name, and what else identifies it."""

    kind: str
    href: str
    text: str
    more: str = ""
    status: str = ""
    id: str = ""
    tenant: str = ""


async def find(site: Site, who: Identity, text: str) -> list[Match]:
    """Return the matches for a text that the visitor may see; runs first, then jobs, types and calendars."""
    check(who, Permission.READ)
    text = text.strip().replace("\x00", "")[:LONGEST]
    if not text:
        return []
    exact = _uuid(text)
    if exact is not None:
        return await _by_id(site, who, exact)
    payload = _PAYLOAD.fullmatch(text)
    if payload is not None:
        path, value = payload[1].split("."), payload[2].strip()
        search = site.services.database.search
        jobs = await search(lambda at: jobs_with_payload(at, path, value, who.tenant, MOST))
        return [_job_match(job) for job in jobs]
    groups = await asyncio.gather(_jobs(site, who, text), _calendars(site, who, text))
    matches = {(match.kind, match.href): match for group in groups for match in group}
    return sorted(matches.values(), key=lambda match: _KINDS.index(match.kind))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _by_id(site: Site, who: Identity, key: UUID) -> list[Match]:
    """Return the job or the run with an id."""
    matches = []
    try:
        job = await site.services.reads.job(who, key)
        matches.append(_match(str(key), job.name, job.job_type, job.status, job.tenant))
    except NotFound:
        pass
    try:
        run = await site.services.reads.run(who, key)
        title = f"Run of {run.job_type}"
        matches.append(Match("run", f"/runs/{key}", title, "", run.status, str(key), run.tenant))
    except NotFound:
        pass
    return matches


async def _jobs(site: Site, who: Identity, text: str) -> list[Match]:
    """Return jobs whose id, name or type begins with a text, or whose name contains it, and their types."""
    prefixed = (await site.services.reads.jobs(who, JobFilter(q=text), MOST)).items
    search = site.services.database.search
    named = await search(lambda at: jobs_with_name(at, text, who.tenant, MOST))
    matches = [_match(str(job.id), job.name, job.job_type, job.status, job.tenant) for job in prefixed]
    types = {job.job_type for job in prefixed if job.job_type.startswith(text)}
    matches += [_job_match(job) for job in named]
    return matches + [Match("type", address("/jobs", {"job_type": name}), name, "all jobs of this type")
                      for name in sorted(types)]


def _job_match(job: FoundJob) -> Match:
    return _match(job.id, job.name, job.job_type, job.status, job.tenant)


def _match(key: str, name: str | None, job_type: str, status: str, tenant: str) -> Match:
    return Match("job", f"/jobs/{key}", name or job_type, job_type if name else "", status, key, tenant)


async def _calendars(site: Site, who: Identity, text: str) -> list[Match]:
    calendars = (await site.services.calendars.list_all(who, 100)).items
    return [Match("calendar", address(f"/calendars/{calendar.name}", {"tenant": calendar.tenant}), calendar.name,
                  "for all tenants" if calendar.tenant == "*" else f"of {calendar.tenant}", tenant=calendar.tenant)
            for calendar in calendars if text.lower() in calendar.name.lower()][:MOST]
