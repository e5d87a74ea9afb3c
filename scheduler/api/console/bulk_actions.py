"""Actions over everything that a filter matches: how many these are, and what is asked before."""

from dataclasses import dataclass, replace

from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import in_words
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.services import Services
from scheduler.postgres.jobs.lists import JobFilter, count_jobs
from scheduler.postgres.runs.lists import RunFilter, count_finished

MOST_COUNTED = 100_000
VERBS = {"pause": ("pending",), "resume": ("paused",), "cancel": ("pending", "paused")}
OPPOSITE = {"pause": "resume", "resume": "pause"}
_PAST = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


@dataclass(frozen=True, slots=True)
class BulkConfirmation:
    """What is asked before many things are touched at once."""

    action: str
    number: int
    question: str
    yes: str


def narrow_filters(action: str, wanted: JobFilter) -> list[JobFilter]:
    """Return the filters for those of the matching jobs that the action changes at all."""
    return [replace(wanted, status=status) for status in VERBS[action] if wanted.status in (None, status)]


async def confirm_jobs(
    services: Services, who: Identity, action: str, wanted: JobFilter, words: dict[str, str]
) -> BulkConfirmation:
    """Count what would be touched, and word the question."""
    number = await count_matching(services, who, narrow_filters(action, wanted))
    shown = _bounded(number, "job")
    about = in_words({name: value for name, value in words.items() if name != "status"})
    question = f"{action.capitalize()} {shown} {about}".strip() + "?"
    if not number:
        question = f"Nothing to {action}: no job that matches is {' or '.join(VERBS[action])}."
    end = " permanently" if action == "cancel" else ""
    return BulkConfirmation(action, number, question, f"{action.capitalize()} {shown}{end}")


async def count_matching(services: Services, who: Identity, filters: list[JobFilter]) -> int:
    """Count the jobs that match any of the filters, as far as this one may see them."""
    check(who, Permission.WRITE)
    total = 0
    for each in filters:
        tenant, any_ = visible_tenant(who, each.tenant)
        if any_:
            mine = replace(each, tenant=tenant)
            total += await services.database.search(lambda at, mine=mine: count_jobs(at, mine, MOST_COUNTED))  # type: ignore[misc]
    return total


async def confirm_runs(services: Services, who: Identity, wanted: RunFilter,
                       words: dict[str, str]) -> BulkConfirmation:
    """Count the runs that would be tried again, and word the question."""
    check(who, Permission.WRITE)
    tenant, any_ = visible_tenant(who, wanted.tenant)
    number = 0
    if any_:
        mine = replace(wanted, tenant=tenant)
        number = await services.database.search(lambda at: count_finished(at, mine, MOST_COUNTED))
    shown = _bounded(number, "run")
    about = in_words(words)
    return BulkConfirmation(
        "retry", number, f"Retry {shown} {f'({about})' if about else ''}".strip() + "?", f"Retry {shown}"
    )


def done_message(action: str, number: int) -> str:
    """Say what was done."""
    return f"{count(number, 'job')} {_PAST[action]}"


def _bounded(number: int, thing: str) -> str:
    return f"more than {number:,} {thing}s" if number >= MOST_COUNTED else count(number, thing)
