"""The state of the whole sidecar: servers, processes and backlog."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Literal, NamedTuple

from scheduler import __version__
from scheduler.api.database import Database
from scheduler.api.problems import ServiceUnavailable
from scheduler.api.read_replica import NAME
from scheduler.ops.logs import without_secrets
from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.stats import list_processes, oldest_due_seconds
from scheduler.postgres.worker_rows import measure_work
from scheduler.rabbit.broker_probe import BrokerState, probe_broker
from scheduler.views.health import DetailedHealth, HealthStatus, ReplicaHealth, ServerHealth

MAX_DUE_SECONDS = 60.0
MAX_RESULTS = 10_000
_SHOWN_ROLES = ("consumer", "producer", "worker", "api")  # also if none is alive
_NEEDED_ROLES = ("consumer", "producer")


class DatabaseState(NamedTuple):
    """The database's problem, or else the live processes by role and the age of the oldest due job."""

    problem: str | None
    processes: Mapping[str, int]
    oldest_due_seconds: float | None
    unoffered: bool = False  # whether work waits that no live worker offers


async def detailed_health(database: Database, amqp_urls: Sequence[str]) -> DetailedHealth:
    """Query both servers concurrently and return the state of the sidecar."""
    broker, stored = await asyncio.gather(
        asyncio.to_thread(probe_broker, amqp_urls), _database_state(database)
    )
    servers: dict[str, ServerHealth | ReplicaHealth] = {
        name: ServerHealth(status=_server_status(problem), problem=problem)
        for name, problem in (("postgres", stored.problem), ("rabbitmq", broker.problem))
    }
    if database.replica is not None:
        lag, problem = astuple(database.replica.state)
        servers[NAME] = ReplicaHealth(status=_server_status(problem), problem=problem, lag_seconds=lag)
    return DetailedHealth(
        status=_status(broker, stored), version=__version__, servers=servers, processes=dict(stored.processes),
        oldest_due_seconds=stored.oldest_due_seconds, results_backlog=broker.results,
    )


def _server_status(problem: str | None) -> Literal["ok", "unavailable"]:
    return "unavailable" if problem else "ok"


async def _database_state(database: Database) -> DatabaseState:
    try:
        return await database.read_primary(_read)
    except ServiceUnavailable as error:
        return DatabaseState(without_secrets(error.detail), {}, None)


def _read(connection: Connection) -> DatabaseState:
    replicas, workers = list_processes(connection)
    alive = Counter(replica.role for replica in replicas if not replica.stale)
    alive["worker"] = sum(not worker.stale for worker in workers)
    processes = dict.fromkeys(_SHOWN_ROLES, 0) | alive
    with translated(), connection.cursor() as cursor:
        unoffered = measure_work(cursor).unoffered > 0
    return DatabaseState(None, processes, round(oldest_due_seconds(connection), 3), unoffered)


def _status(broker: BrokerState, stored: DatabaseState) -> HealthStatus:
    if stored.problem is not None:
        return "down"
    late = (stored.oldest_due_seconds or 0) > MAX_DUE_SECONDS
    if broker.results is None or broker.results > MAX_RESULTS or late or stored.unoffered:
        return "degraded"
    return "ok" if all(stored.processes[role] for role in _NEEDED_ROLES) else "degraded"
