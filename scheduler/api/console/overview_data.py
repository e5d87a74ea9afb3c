"""The contexts of the overview and the processes page, for one tenant or for all."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any

from scheduler.api.console import formatting
from scheduler.api.console.activity_history import (
    ON_TIME_SECONDS,
    OVERDUE_SECONDS,
    ActivityHistory,
    TimelinessStatus,
    alive,
    sample,
    timeliness_status,
)
from scheduler.api.console.broadcaster import LiveSnapshot
from scheduler.api.console.list_filters import address
from scheduler.api.console.problem_causes import causes_of
from scheduler.ops.recent_activity import percentile
from scheduler.postgres.console_queries import SystemSnapshot
from scheduler.postgres.maintenance_queries import BACKLOG_COUNTED
from scheduler.views.overview import StatsView
from scheduler.views.runs import OPEN_RUNS

_SHOWN = 5
_BUSY_SHOWN = 3
_MAX_WORKER_NAME = 200  # characters, as in results
_ROLES = ("consumer", "producer", "worker", "api")


def overview(snapshot: LiveSnapshot, history: ActivityHistory) -> dict[str, Any]:
    """Return the overview's context for users of all tenants."""
    pulse = snapshot.pulse
    if pulse is None:
        return {
            "status": TimelinessStatus("bad", f"The database cannot be reached: {snapshot.problem}"),
            "causes": [],
            "failing": [],
            "upcoming": [],
            "roles": [],
            **_tiles(None, history),
        }
    status = timeliness_status(pulse, history)
    if snapshot.problem is not None:
        status = TimelinessStatus("bad", f"The database does not respond: {snapshot.problem}")
    return {
        "status": status, "causes": causes_of(snapshot, None), **_tiles(pulse, history),
        "failing": list(snapshot.failing)[:_SHOWN],
        "upcoming": list(pulse.upcoming)[:_SHOWN], "roles": roles(pulse),
    }


def tenant_overview(snapshot: LiveSnapshot, stats: StatsView | None, tenant: str) -> dict[str, Any]:
    """Return the overview's context for one tenant, without data about other tenants."""
    pulse = snapshot.pulse
    return {
        "status": _tenant_status(snapshot, stats), "causes": causes_of(snapshot, tenant), **_tenant_tiles(stats),
        "failing": _own(snapshot.failing, tenant)[:_SHOWN],
        "upcoming": [] if pulse is None else _own(pulse.upcoming, tenant)[:_SHOWN], "roles": [],
    }


def _tenant_status(snapshot: LiveSnapshot, stats: StatsView | None) -> TimelinessStatus:
    if snapshot.problem is not None or snapshot.pulse is None:
        return TimelinessStatus("bad", "The database does not respond")
    if stats is None:
        return TimelinessStatus("waiting", "The figures are not available at the snapshot")
    p50, p99 = stats.lag_ms.p50, stats.lag_ms.p99
    if stats.oldest_due_seconds > OVERDUE_SECONDS:
        waiting = f"{formatting.count(stats.backlog, 'reminder')} {'is' if stats.backlog == 1 else 'are'}"
        text = f"Late: {waiting} due and not emitted, for {formatting.span(stats.oldest_due_seconds)}"
        return TimelinessStatus("bad", text, late=True)
    if p50 is None or p99 is None:
        return TimelinessStatus("good", "On time: nothing was due")
    text = f"half within {formatting.span(p50 / 1000)}, 99 % within {formatting.span(p99 / 1000)}"
    on_time = p99 <= ON_TIME_SECONDS * 1000
    return TimelinessStatus("good", f"On time: {text}") if on_time else TimelinessStatus("waiting",
                                                                                         f"Late at times: {text}")


def _tenant_tiles(stats: StatsView | None) -> dict[str, Any]:
    """Return a tenant's figures for the tiles; rates exist only for all tenants together."""
    if stats is None:
        return _no_tiles()
    p50, p99 = (None if lag is None else lag / 1000 for lag in (stats.lag_ms.p50, stats.lag_ms.p99))
    dead, age = stats.runs.get("dead", 0), stats.oldest_due_seconds
    return _no_tiles() | {
        "lag_p50": formatting.span(p50), "lag_p99": formatting.span(p99), "backlog": _bounded(stats.backlog),
        "oldest": f"oldest {formatting.span(age)}" if stats.backlog else "nothing waits", "oldest_bad": age > 1,
        "success": formatting.percent(stats.success_rate),
        "open_runs": _bounded(sum(stats.runs.get(status, 0) for status in OPEN_RUNS)), "dead_runs": dead,
        "dead_shown": _bounded(dead),
    }


def _no_tiles() -> dict[str, Any]:
    names = ("lag_p50", "lag_p99", "out", "stored", "backlog", "oldest", "success", "open_runs", "dead_shown")
    return dict.fromkeys(names, formatting.NOTHING) | {"oldest_bad": False, "dead_runs": 0}


def _own(rows: Sequence[Mapping[str, Any]], tenant: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["tenant"] == tenant]


def _tiles(pulse: SystemSnapshot | None, history: ActivityHistory) -> dict[str, Any]:
    """Return the figures for the tiles."""
    if pulse is None:
        return _no_tiles()
    now, backlog = sample(pulse), pulse.backlog
    return {
        "lag_p50": formatting.span(percentile(0.5, now.lags)),
        "lag_p99": formatting.span(percentile(0.99, now.lags)),
        "out": formatting.number(now.out), "stored": formatting.number(now.stored),
        "backlog": _bounded(backlog.due),
        "oldest": f"oldest {formatting.span(backlog.oldest_age)}" if backlog.due else "nothing waits",
        "oldest_bad": backlog.oldest_age > 1, "success": formatting.percent(history.success()),
        "open_runs": _bounded(backlog.runs_open), "dead_runs": backlog.runs_dead,
        "dead_shown": _bounded(backlog.runs_dead),
    }


def _bounded(number: int) -> str:
    return f"{number:,}" + ("+" if number >= BACKLOG_COUNTED else "")


def charts(history: ActivityHistory) -> dict[str, Any]:
    """Return the samples for the charts, and the newest sample as text for browsers without scripts."""
    points = history.points()
    newest = [column[-1] for column in points] if points else [None] * 7
    _, p50, p99, out, stored, backlog, success = newest
    return {
        "samples": json.dumps(points),
        "period": history.period(),
        "summaries": {
            "lag": f"p50 {formatting.number(p50)} ms, p99 {formatting.number(p99)} ms",
            "rates": f"{formatting.number(out)} out, {formatting.number(stored)} in, per second",
            "backlog": formatting.number(backlog),
            "success": formatting.NOTHING if success is None else f"{formatting.number(success)} %",
        },
    }


def roles(pulse: SystemSnapshot) -> list[dict[str, Any]]:
    """Return the numbers of live, silent and busy processes by role."""
    by_name: dict[str, dict[str, Any]] = {}
    everyone = [(str(replica["role"]), replica) for replica in pulse.replicas] + [
        ("worker", worker) for worker in pulse.workers
    ]
    for name, process in everyone:
        role = by_name.setdefault(name, {"name": name, "alive": 0, "silent": 0, "busy": 0})
        lives = alive(process, pulse.at)
        role["alive" if lives else "silent"] += 1
        role["busy"] += int(lives and process.get("in_flight", 0) > 0)
    return sorted(by_name.values(), key=lambda role: (_ROLES.index(role["name"]) if role["name"] in _ROLES else 9))


def processes(snapshot: LiveSnapshot) -> dict[str, Any]:
    """Return the context of the processes page."""
    pulse = snapshot.pulse
    if pulse is None:
        return {"replicas": [], "workers": []}
    replicas = [
        dict(row) | {"alive": alive(row, pulse.at), "out": _rate(row, "due"), "stored": _rate(row, "queued")}
        for row in pulse.replicas
    ]
    workers = [
        dict(row) | {"alive": alive(row, pulse.at), "busy": _busy(row["busy"]), "runs": _runs(row),
                     "utilisation": _utilisation(row["in_flight"], row.get("capacity"))}
        for row in pulse.workers
    ]
    return {"replicas": replicas, "workers": sorted(workers, key=lambda worker: not worker["alive"])}


def _utilisation(in_flight: int, capacity: int | None) -> str | None:
    return f"{in_flight / capacity:.0%}".replace("%", " %") if capacity else None


def _runs(worker: Mapping[str, Any]) -> str:
    """Return the address of a worker's runs since the day before it started, which limits the search."""
    started = formatting.instant(worker["started_at"])
    since = None if started is None else f"{started.astimezone(UTC) - timedelta(days=1):%Y-%m-%dT%H:%M}"
    return address("/runs", {"worker": f"{worker['host']}:{worker['pid']}"[:_MAX_WORKER_NAME], "since": since})


def _rate(replica: Mapping[str, Any], name: str) -> float:
    recent = replica["recent"]
    return float(recent.get(name, 0)) / max(float(recent.get("seconds", 1)), 0.001)


def _busy(reported: Any) -> list[dict[str, Any]]:
    """Return a worker's current work; workers may report it in any form."""
    tasks = []
    for task in (reported if isinstance(reported, list) else [])[:_BUSY_SHOWN]:
        if isinstance(task, dict):
            attempt = f", attempt {task['attempt']}" if task.get("attempt") else ""
            text = f"{task.get('what') or 'work'}{attempt}"
            tasks.append({"event_id": task.get("event_id"), "text": text[:200]})
        else:
            tasks.append({"event_id": None, "text": str(task)[:200]})
    return tasks
