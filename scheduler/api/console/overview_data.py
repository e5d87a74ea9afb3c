"""What the overview and the page of processes show of a moment, for one tenant or for all."""

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
from scheduler.ops.recent_activity import percentile
from scheduler.postgres.console_queries import SystemSnapshot
from scheduler.postgres.maintenance_queries import BACKLOG_COUNTED
from scheduler.views.overview import StatsView
from scheduler.views.runs import OPEN_RUNS

_SHOWN = 5
_BUSY_SHOWN = 3
_LONGEST_NAME = 200  # as workers call themselves in their results
_ROLES = ("consumer", "producer", "worker", "api")


def overview(moment: LiveSnapshot, history: ActivityHistory) -> dict[str, Any]:
    """Return the overview's context for who sees all tenants."""
    pulse = moment.pulse
    if pulse is None:
        words_ = f"The database cannot be reached: {moment.problem}"
        return {
            "verdict": TimelinessStatus("bad", words_),
            "failing": [],
            "upcoming": [],
            "roles": [],
            **_tiles(None, history),
        }
    said = timeliness_status(pulse, history)
    if moment.problem is not None:
        said = TimelinessStatus("bad", f"The database does not respond: {moment.problem}")
    return {
        "verdict": said, **_tiles(pulse, history), "failing": list(moment.failing)[:_SHOWN],
        "upcoming": list(pulse.upcoming)[:_SHOWN], "roles": roles(pulse),
    }


def tenant_overview(moment: LiveSnapshot, stats: StatsView | None, tenant: str) -> dict[str, Any]:
    """Return the overview's context for one tenant: its own figures, and nothing of the whole."""
    pulse = moment.pulse
    return {
        "verdict": _tenant_verdict(moment, stats), **_tenant_tiles(stats),
        "failing": _own(moment.failing, tenant)[:_SHOWN],
        "upcoming": [] if pulse is None else _own(pulse.upcoming, tenant)[:_SHOWN], "roles": [],
    }


def _tenant_verdict(moment: LiveSnapshot, stats: StatsView | None) -> TimelinessStatus:
    if moment.problem is not None or moment.pulse is None:
        return TimelinessStatus("bad", "The database does not respond")
    if stats is None:
        return TimelinessStatus("waiting", "The figures are not available at the moment")
    p50, p99 = stats.lag_ms.p50, stats.lag_ms.p99
    if stats.oldest_due_seconds > OVERDUE_SECONDS:
        waiting = f"{formatting.count(stats.backlog, 'reminder')} {'is' if stats.backlog == 1 else 'are'}"
        return TimelinessStatus(
            "bad", f"Late: {waiting} due and not emitted, for {formatting.span(stats.oldest_due_seconds)}"
        )
    if p50 is None or p99 is None:
        return TimelinessStatus("good", "On time: nothing was due")
    text = f"half within {formatting.span(p50 / 1000)}, 99 % within {formatting.span(p99 / 1000)}"
    on_time = p99 <= ON_TIME_SECONDS * 1000
    return TimelinessStatus("good", f"On time: {text}") if on_time else TimelinessStatus("waiting",
                                                                                         f"Late at times: {text}")


def _tenant_tiles(stats: StatsView | None) -> dict[str, Any]:
    """Return a tenant's figures in the row of tiles; what each second brings is known of the whole only."""
    if stats is None:
        return _no_tiles()
    p50, p99 = (None if each is None else each / 1000 for each in (stats.lag_ms.p50, stats.lag_ms.p99))
    dead, age = stats.runs.get("dead", 0), stats.oldest_due_seconds
    return _no_tiles() | {
        "lag_p50": formatting.span(p50), "lag_p99": formatting.span(p99), "backlog": _bounded(stats.backlog),
        "oldest": f"oldest {formatting.span(age)}" if stats.backlog else "nothing waits", "oldest_bad": age > 1,
        "success": formatting.percent(stats.success_rate),
        "open_runs": _bounded(sum(stats.runs.get(each, 0) for each in OPEN_RUNS)), "dead_runs": dead,
        "dead_shown": _bounded(dead),
    }


def _no_tiles() -> dict[str, Any]:
    names = ("lag_p50", "lag_p99", "out", "taken", "backlog", "oldest", "success", "open_runs", "dead_shown")
    return dict.fromkeys(names, formatting.NOTHING) | {"oldest_bad": False, "dead_runs": 0}


def _own(rows: Sequence[Mapping[str, Any]], tenant: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["tenant"] == tenant]


def _tiles(pulse: SystemSnapshot | None, history: ActivityHistory) -> dict[str, Any]:
    """Return the figures in the row of tiles."""
    if pulse is None:
        return _no_tiles()
    now, backlog = sample(pulse), pulse.backlog
    return {
        "lag_p50": formatting.span(percentile(0.5, now.lags)),
        "lag_p99": formatting.span(percentile(0.99, now.lags)),
        "out": formatting.number(now.out), "taken": formatting.number(now.taken), "backlog": _bounded(backlog.due),
        "oldest": f"oldest {formatting.span(backlog.oldest_age)}" if backlog.due else "nothing waits",
        "oldest_bad": backlog.oldest_age > 1, "success": formatting.percent(history.success()),
        "open_runs": _bounded(backlog.runs_open), "dead_runs": backlog.runs_dead,
        "dead_shown": _bounded(backlog.runs_dead),
    }


def _bounded(number: int) -> str:
    return f"{number:,}" + ("+" if number >= BACKLOG_COUNTED else "")


def charts(history: ActivityHistory) -> dict[str, Any]:
    """Return the samples for the charts, and the newest of them in words for who has no scripts."""
    points = history.points()
    newest = [column[-1] for column in points] if points else [None] * 7
    _, p50, p99, out, taken, backlog, success = newest
    return {
        "samples": json.dumps(points),
        "reach": history.reach(),
        "summaries": {
            "lag": f"p50 {formatting.number(p50)} ms, p99 {formatting.number(p99)} ms",
            "rates": f"{formatting.number(out)} out, {formatting.number(taken)} in a second",
            "backlog": formatting.number(backlog),
            "success": formatting.NOTHING if success is None else f"{formatting.number(success)} %",
        },
    }


def roles(pulse: SystemSnapshot) -> list[dict[str, Any]]:
    """Return how many of each kind of process live, have fallen silent, and are busy."""
    found: dict[str, dict[str, Any]] = {}
    everyone = [(str(each["role"]), each) for each in pulse.replicas] + [
        ("worker", each) for each in pulse.workers
    ]
    for name, each in everyone:
        role = found.setdefault(name, {"name": name, "alive": 0, "silent": 0, "busy": 0})
        lives = alive(each, pulse.at)
        role["alive" if lives else "silent"] += 1
        role["busy"] += int(lives and each.get("in_flight", 0) > 0)
    return sorted(found.values(), key=lambda role: (_ROLES.index(role["name"]) if role["name"] in _ROLES else 9))


def processes(moment: LiveSnapshot) -> dict[str, Any]:
    """Return the context of the page of processes."""
    pulse = moment.pulse
    if pulse is None:
        return {"replicas": [], "workers": []}
    replicas = [
        dict(each) | {"alive": alive(each, pulse.at), "out": _rate(each, "due"), "taken": _rate(each, "queued")}
        for each in pulse.replicas
    ]
    workers = [
        dict(each) | {"alive": alive(each, pulse.at), "busy": _busy(each["busy"]), "runs": _runs(each)}
        for each in pulse.workers
    ]
    return {"replicas": replicas, "workers": sorted(workers, key=lambda each: not each["alive"])}


def _runs(worker: Mapping[str, Any]) -> str:
    """Return where its runs are listed: from the day before it started, so that no longer history is walked."""
    started = formatting.instant(worker["started_at"])
    since = None if started is None else f"{started.astimezone(UTC) - timedelta(days=1):%Y-%m-%dT%H:%M}"
    return address("/runs", {"worker": f"{worker['host']}:{worker['pid']}"[:_LONGEST_NAME], "since": since})


def _rate(replica: Mapping[str, Any], name: str) -> float:
    recent = replica["recent"]
    return float(recent.get(name, 0)) / max(float(recent.get("seconds", 1)), 0.001)


def _busy(told: Any) -> list[dict[str, Any]]:
    """Return what a worker says it is busy with: it is the worker's own word, whatever shape that has."""
    found = []
    for each in (told if isinstance(told, list) else [])[:_BUSY_SHOWN]:
        if isinstance(each, dict):
            tries = f", attempt {each['attempt']}" if each.get("attempt") else ""
            found.append({"event_id": each.get("event_id"), "words": f"{each.get('what') or 'work'}{tries}"[:200]})
        else:
            found.append({"event_id": None, "words": str(each)[:200]})
    return found
