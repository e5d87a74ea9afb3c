"""The process `scheduler api`: serves the application until it is stopped, also without its servers."""

import asyncio
import logging
import os
import resource
import socket

import uvicorn
import uvloop

from scheduler.api.app import application, build
from scheduler.api.console.site import Site
from scheduler.api.services import make_services
from scheduler.api.slow_clients import TimeoutProtocol
from scheduler.domain.errors import Misconfigured
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.settings import Settings

log = get_logger(__name__)

_LIVENESS_SECONDS = 1.0
_GRACE_SECONDS = 3  # for requests in progress
_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 15


class ApiServer:
    """Serves HTTP on an event loop."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        self._services = make_services(settings, health)
        self._socket = _listen(settings.api_host, settings.api_port)

    def run(self) -> None:
        """Serve until the process is stopped."""
        _allow_many_connections()
        # Malformed requests are the client's fault; other requests are logged by the middleware.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        app = build(self._services)
        config = uvicorn.Config(
            application(app, self._settings.cors_origins), log_config=None, access_log=False, server_header=False,
            lifespan="off", proxy_headers=False, timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS, backlog=_BACKLOG, ws="none", http=TimeoutProtocol,
        )
        log.info("serving", api_host=self._settings.api_host, api_port=self._socket.getsockname()[1])
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(uvicorn.Server(config), app.state.console))
        finally:
            self._services.close()

    async def _serve(self, server: uvicorn.Server, console: Site) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        loop = asyncio.get_running_loop()

        def leave() -> None:
            server.should_exit = True
            console.broadcaster.stop()  # its streams never end on their own

        loop.add_reader(reader, leave)
        tasks = [asyncio.create_task(self._report_alive()), asyncio.create_task(console.broadcaster.run())]
        if (replica := self._services.database.replica) is not None:
            tasks.append(asyncio.create_task(replica.watch()))
        try:
            with self._stop.wakes(writer):
                if self._stop:
                    leave()
                await server.serve([self._socket])
        finally:
            for task in tasks:
                task.cancel()
            loop.remove_reader(reader)
            os.close(reader)
            os.close(writer)

    async def _report_alive(self) -> None:
        """Report to the health check that the event loop runs."""
        while True:
            self._health.turn()
            await asyncio.sleep(_LIVENESS_SECONDS)


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises Misconfigured if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise Misconfigured(f"API_HOST {host}, API_PORT {port}: cannot listen there: "
                            f"{error.strerror or error}") from None
    return listening


def _allow_many_connections() -> None:
    """Raise the limit of file descriptors as far as possible: each slow client holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
