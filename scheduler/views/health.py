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


class DetailedHealth(View):
    """The state of the sidecar.

    `down` without a database. `degraded` without a broker, a live consumer or a live producer, if a job has been
    due for more than 60 seconds, if more than 10,000 results wait, or if work waits that no live worker offers.
    """

    status: HealthStatus
    version: str
    servers: dict[str, ServerHealth]
    processes: dict[str, int]
    oldest_due_seconds: float | None
    results_backlog: int | None
