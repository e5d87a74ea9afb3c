"""Views of a process's health."""

from typing import Literal

from scheduler.views.base import View

HealthStatus = Literal["ok", "degraded", "down"]


class Alive(View):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class ServerHealth(View):
    """A server and its problem."""

    status: Literal["ok", "unavailable"]
    problem: str | None = None


class ReplicaHealth(ServerHealth):
    """The read replica: `unavailable` while reads use the primary instead. `lag_seconds` is null if unknown."""

    lag_seconds: float | None


class DetailedHealth(View):
    """The state of the sidecar.

    `down` without a database. `degraded` without a broker, a live consumer or a live producer, if a job has been
    due for more than 60 seconds, if more than 10,000 results wait, or if work waits that no live worker offers.
    A read replica does not affect it.
    """

    status: HealthStatus
    version: str
    servers: dict[str, ReplicaHealth | ServerHealth]
    processes: dict[str, int]
    oldest_due_seconds: float | None
    results_backlog: int | None
