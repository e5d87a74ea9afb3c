"""The causes of problems, listed under the headline, with their extent, start time and a link to act on them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.activity_history import OVERDUE_SECONDS, alive
from scheduler.api.console.broadcaster import LiveSnapshot
from scheduler.api.console.formatting import count, instant
from scheduler.api.console.list_filters import address
from scheduler.postgres.console_queries import SystemSnapshot

MAX_CAUSES = 4
_SILENT_SHOWN = timedelta(hours=1)  # a worker that was silent for longer was stopped for good
_FEW_FAILURES = 3  # fewer are in "Fails most" only
_FLOOD_JOBS, _FLOOD_SHARE = 500, 0.8
_RETURNED = re.compile(r"returned: no queue is bound to (\S+) for the routing key (\S+)")
_COMMAND = re.compile(r"command\.([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class ProblemCause:
    """One cause, with the pages that show and change it."""

    text: str
    since: datetime | None
    href: str
    weight: int  # jobs concerned, for the order
    retry: str | None = None  # the page that asks before a bulk retry


def causes_of(snapshot: LiveSnapshot, tenant: str | None) -> list[ProblemCause]:
    """Return the most important causes that a tenant may see; None for all tenants."""
    pulse = snapshot.pulse
    if pulse is None:
        return []
    causes = [*_refused(_visible(snapshot, "refused", tenant)), *_errors(_visible(snapshot, "errors", tenant))]
    if tenant is None:
        causes += [*_silent_workers(pulse), *_flood(snapshot.causes.get("due", ()), pulse)]
    return sorted(causes, key=lambda cause: -cause.weight)[:MAX_CAUSES]


def _visible(snapshot: LiveSnapshot, name: str, tenant: str | None) -> list[Mapping[str, Any]]:
    return [row for row in snapshot.causes.get(name, ()) if tenant in (None, row["tenant"])]


def _grouped(rows: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[key]), []).append(row)
    return groups


def _since(rows: Iterable[Mapping[str, Any]]) -> datetime | None:
    return min((moment for row in rows if (moment := instant(row["since"])) is not None), default=None)


def _extent(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of jobs and tenants: 60 jobs of 3 tenants."""
    jobs = count(sum(row["jobs"] for row in rows), "job")
    return jobs if len(rows) == 1 else f"{jobs} of {count(len(rows), 'tenant')}"


def _refused(rows: Iterable[Mapping[str, Any]]) -> Iterable[ProblemCause]:
    for problem, group in _grouped(rows, "problem").items():
        tenant = group[0]["tenant"] if len(group) == 1 else None
        yield ProblemCause(f"{problem_sentence(problem)}: {_extent(group)}", _since(group),
                    address("/jobs", {"late": "1", "tenant": tenant}), 1000 + sum(row["jobs"] for row in group))


def problem_sentence(problem: str) -> str:
    """Return a sentence that says why the broker rejected an event."""
    match = _RETURNED.match(problem)
    if match is None:
        text = problem.removeprefix("returned: ")
        return text[:1].upper() + text[1:] if text else "RabbitMQ rejects events"
    exchange, key = match.groups()
    command = _COMMAND.match(key)
    if command is not None:
        return f"No worker offers the command {command[1]}"
    if exchange == "schedule.work":
        return "No worker accepts webhooks" if key.startswith("webhook") else f"No worker accepts {key}"
    return f"No queue is bound to {exchange} for {key}"


def _errors(rows: Iterable[Mapping[str, Any]]) -> Iterable[ProblemCause]:
    for error, group in _grouped(rows, "error").items():
        dead, waiting = (sum(row[name] for row in group) for name in ("dead", "waiting"))
        jobs, types = sum(row["jobs"] for row in group), {row["job_type"] for row in group}
        if dead + waiting < _FEW_FAILURES:
            continue
        one_type = types.pop() if len(types) == 1 and all(row["types"] == 1 for row in group) else None
        filters = {"job_type": one_type, "tenant": group[0]["tenant"] if len(group) == 1 else None}
        status = "dead" if dead else "waiting"
        href = f"/runs/{group[0]['event_id']}" if jobs == 1 else address("/runs", {"status": status}, filters)
        retry = address("/runs", {"status": "dead"}, filters, {"ask": "retry"}) if dead and one_type else None
        failed = " and ".join([*([f"{dead:,} dead"] if dead else []),
                               *([f"{waiting:,} to be retried"] if waiting else [])])
        first_line = error.splitlines()[0][:160] if error.strip() else "An error without a text"
        yield ProblemCause(f"{first_line}: {_extent(group)}, {failed}", _since(group), href, jobs, retry)


def _silent_workers(pulse: SystemSnapshot) -> Iterable[ProblemCause]:
    offered = {str(offer) for worker in pulse.workers if alive(worker, pulse.at) for offer in worker["offers"]}
    for worker in pulse.workers:
        seen = instant(worker["last_seen_at"])
        if alive(worker, pulse.at) or seen is None or pulse.at - seen > _SILENT_SHOWN:
            continue
        missing = [str(offer) for offer in worker["offers"] if str(offer) not in offered]
        busy = int(worker.get("in_flight") or 0)
        if not missing and not busy:
            continue
        work = f", with {count(busy, 'run')} in progress" if busy else ""
        alone = f"; no other worker offers {', '.join(missing[:3])}" if missing else ""
        text = f"The worker {worker['host']}:{worker['pid']} has stopped reporting{work}{alone}"
        yield ProblemCause(text, seen, "/processes", 500 + busy)


def _flood(rows: Sequence[Mapping[str, Any]], pulse: SystemSnapshot) -> Iterable[ProblemCause]:
    total = sum(row["jobs"] for row in rows)
    if len(rows) < 2 or total < _FLOOD_JOBS or pulse.backlog.oldest_age <= OVERDUE_SECONDS:  # noqa: PLR2004 - others
        return
    first = max(rows, key=lambda row: row["jobs"])
    if first["jobs"] >= _FLOOD_SHARE * total:
        share = f"{first['jobs'] / total:.0%}".replace("%", " %")
        yield ProblemCause(f"The tenant {first['tenant']} has {share} of what is due", _since([first]),
                    address("/jobs", {"late": "1", "tenant": first["tenant"]}), int(first["jobs"]))
