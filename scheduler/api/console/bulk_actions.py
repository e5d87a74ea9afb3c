"""Bulk actions: the number of matching jobs or runs, and the question to confirm."""

from dataclasses import dataclass, replace

from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import describe_filters
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.services import Services
from scheduler.domain.messages import BULK_VERBS
from scheduler.postgres.jobs.lists import JobFilter, count_jobs
from scheduler.postgres.runs.lists import RunFilter, count_finished

MAX_COUNTED = 100_000


@dataclass(frozen=True, slots=True)
class BulkConfirmation:
    """The question before a bulk action."""

    action: str
    number: int
    question: str
    yes: str


def narrow_filters(action: str, filters: JobFilter) -> list[JobFilter]:
    """Return filters for the matching jobs that the action would change."""
    changes = BULK_VERBS[action].changes
    return [replace(filters, status=status) for status in changes if filters.status in (None, status)]


async def confirm_jobs(
    services: Services, who: Identity, action: str, filters: JobFilter, texts: dict[str, str]
) -> BulkConfirmation:
    """Count the affected jobs and return the question."""
    number = await count_matching(services, who, narrow_filters(action, filters))
    counted = _bounded(number, "job")
    about = describe_filters({name: value for name, value in texts.items() if name != "status"})
    question = f"{action.capitalize()} {counted} {about}".strip() + "?"
    if not number:
        question = f"Nothing to {action}: no matching job is {' or '.join(BULK_VERBS[action].changes)}."
    end = " permanently" if BULK_VERBS[action].permanent else ""
    return BulkConfirmation(action, number, question, f"{action.capitalize()} {counted}{end}")


async def count_matching(services: Services, who: Identity, alternatives: list[JobFilter]) -> int:
    """Count the jobs that match any of the filters and that the caller may see."""
    check(who, Permission.WRITE)
    total = 0
    for filters in alternatives:
        tenant, visible = visible_tenant(who, filters.tenant)
        if visible:
            owned = replace(filters, tenant=tenant)
            total += await services.database.search(lambda at, owned=owned: count_jobs(at, owned, MAX_COUNTED))  # type: ignore[misc]
    return total


async def confirm_runs(services: Services, who: Identity, filters: RunFilter,
                       texts: dict[str, str]) -> BulkConfirmation:
    """Count the runs that would be retried, and return the question."""
    check(who, Permission.WRITE)
    tenant, visible = visible_tenant(who, filters.tenant)
    number = 0
    if visible:
        owned = replace(filters, tenant=tenant)
        number = await services.database.search(lambda at: count_finished(at, owned, MAX_COUNTED))
    counted = _bounded(number, "run")
    about = describe_filters(texts)
    return BulkConfirmation(
        "retry", number, f"Retry {counted} {f'({about})' if about else ''}".strip() + "?", f"Retry {counted}"
    )


def done_message(action: str, number: int) -> str:
    """Return the message after a bulk action."""
    return f"{count(number, 'job')} {BULK_VERBS[action].done}"


def _bounded(number: int, thing: str) -> str:
    return f"more than {number:,} {thing}s" if number >= MAX_COUNTED else count(number, thing)
