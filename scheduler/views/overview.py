"""Views of the overview: statistics, replicas, workers and the audit log."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal

from pydantic import Field

from scheduler.domain.messages import Instant
from scheduler.domain.offer_tenants import usable_offers
from scheduler.domain.targets.target import mask_target_text
from scheduler.postgres.audit import AuditRow
from scheduler.postgres.maintenance_queries import SeenReplica
from scheduler.postgres.stats import Stats
from scheduler.postgres.worker_rows import SeenWorker
from scheduler.views.base import View
from scheduler.views.jobs import JOB_STATES
from scheduler.views.runs import RUN_STATES


class LagView(View):
    """Milliseconds between due and confirmed; null if nothing was emitted."""

    p50: float | None
    p99: float | None


class StatsView(View):
    """Counts by status; beyond 100,000 they are estimates."""

    jobs: dict[str, int]
    runs: dict[str, int]
    success_rate: float | None
    mean_duration_ms: float | None
    lag_ms: LagView
    backlog: int
    oldest_due_seconds: float


class ReplicaView(View):
    """A sidecar process or worker with a recent heartbeat."""

    role: str
    host: str
    pid: int
    version: str
    status: Literal["alive", "silent"]
    started_at: Instant
    last_seen_at: Instant
    metrics_port: int | None = None
    id: str | None = None
    offers: list[str] | None = None
    in_flight: int | None = None
    busy: list[dict[str, Any]] | None = None
    succeeded: int | None = None
    failed: int | None = None
    snoozed: int | None = None
    platform: str | None = None
    pools: list[str] | None = None
    capacity: int | None = None


class RoleView(View):
    """The live processes of one role, for a token with one tenant."""

    role: str
    count: int
    offers: list[str] | None = None


class AuditView(View):
    """An entry of the audit log."""

    optional: ClassVar[frozenset[str]] = frozenset({"batch", "reason"})

    at: Instant
    who: str | None
    via: Literal["api", "amqp", "cli", "console"]
    action: str
    kind: str
    id: str
    tenant: str
    address: str | None
    before: Any
    after: Any
    batch: str | None = Field(default=None, description="The bulk action of the change; absent without one.")
    reason: str | None = Field(default=None, description="The reason that the caller gave; absent without one.")


def stats_view(stats: Stats) -> StatsView:
    """Return the statistics, with every status."""
    p50, p99 = stats.lag_ms or (None, None)
    return StatsView(
        jobs={state: stats.jobs.get(state, 0) for state in JOB_STATES},
        runs={state: stats.runs.get(state, 0) for state in RUN_STATES},
        success_rate=round(stats.succeeded / stats.ended, 4) if stats.ended else None,
        mean_duration_ms=None if stats.mean_duration_ms is None else round(stats.mean_duration_ms, 3),
        lag_ms=LagView(p50=_rounded(p50), p99=_rounded(p99)), backlog=stats.backlog,
        oldest_due_seconds=round(stats.oldest_due_seconds, 3),
    )


def replica_view(seen: SeenReplica) -> ReplicaView:
    """Return a process of the sidecar."""
    return ReplicaView(
        role=seen.role, host=seen.host, pid=seen.pid, version=seen.version, metrics_port=seen.metrics_port,
        id=seen.id, **_times(seen.up_seconds, seen.silent_seconds, stale=seen.stale),
    )


def worker_view(seen: SeenWorker) -> ReplicaView:
    """Return a worker."""
    return ReplicaView(
        role="worker", host=seen.host, pid=seen.pid, version=seen.version, id=seen.id, offers=list(seen.offers),
        in_flight=seen.in_flight, busy=seen.busy, succeeded=seen.succeeded, failed=seen.failed,
        snoozed=seen.snoozed, platform=seen.platform, pools=seen.pools, capacity=seen.capacity,
        **_times(seen.up_seconds, seen.silent_seconds, stale=seen.stale),
    )


def role_views(replicas: Iterable[SeenReplica], workers: Iterable[SeenWorker], tenant: str) -> list[RoleView]:
    """Return the live processes per role, and the workers' offers that the tenant may use."""
    counts = Counter(replica.role for replica in replicas if not replica.stale)
    live = [worker for worker in workers if not worker.stale]
    offers = {offer for worker in live for offer in usable_offers(worker.offers, worker.offer_tenants, tenant)}
    views = [RoleView(role=role, count=count) for role, count in sorted(counts.items())]
    return [*views, RoleView(role="worker", count=len(live), offers=sorted(offers))]


def audit_view(row: AuditRow) -> AuditView:
    """Return the view of an audit entry."""
    return AuditView.model_construct(
        at=row.at, who=row.who, via=row.via, action=row.action, kind=row.kind, id=row.thing, tenant=row.tenant,
        address=row.address, before=_masked(row.before), after=_masked(row.after), batch=row.batch,
        reason=row.reason,
    )


def _masked(change: Any) -> Any:
    """Return a change without literal credentials: entries of older releases may have some."""
    if isinstance(change, dict) and isinstance(change.get("target"), str):
        return change | {"target": mask_target_text(change["target"])}
    return change


def _times(up: float, silent: float, *, stale: bool) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "status": "silent" if stale else "alive", "started_at": now - timedelta(seconds=up),
        "last_seen_at": now - timedelta(seconds=silent),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
