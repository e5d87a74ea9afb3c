"""The servers as one process sees them."""

from typing import Literal

from scheduler.views.base import View


class Alive(View):
    """The process lives."""

    status: Literal["ok"] = "ok"


class ServerHealth(View):
    """A server, and what is wrong with it."""

    status: Literal["ok", "unavailable"]
    problem: str | None = None


class DetailedHealth(View):
    """`ok` where every server answers; without RabbitMQ `degraded`: everything but dead letters works."""

    status: Literal["ok", "degraded", "unavailable"]
    version: str
    servers: dict[str, ServerHealth]
