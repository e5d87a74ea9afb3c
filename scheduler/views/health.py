"""Views of a process's health."""

from typing import Literal

from scheduler.views.base import View


class Alive(View):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class ServerHealth(View):
    """A server and its problem."""

    status: Literal["ok", "unavailable"]
    problem: str | None = None


class DetailedHealth(View):
    """`ok` if every server responds; `degraded` without RabbitMQ: only dead letters are unavailable."""

    status: Literal["ok", "degraded", "unavailable"]
    version: str
    servers: dict[str, ServerHealth]
