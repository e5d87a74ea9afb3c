"""CORS: lets browsers of the configured origins use the API with a bearer token."""

from collections.abc import MutableMapping
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from scheduler.api.request_middleware import App, Receive, Send

_METHODS = ("GET", "POST", "PUT", "DELETE")
_REQUEST_HEADERS = ("Authorization", "If-Match", "traceparent", "tracestate")
_EXPOSED = ("ETag", "Location", "Retry-After")


class ApiCors:
    """Answers preflights without a token and adds the CORS headers to all responses of the API, errors included.

    It is the outermost layer, because each layer below may respond with an error.
    """

    def __init__(self, app: App, origins: tuple[str, ...]) -> None:
        self._app = app
        self._cors = CORSMiddleware(
            app, allow_origins=origins, allow_methods=_METHODS, allow_headers=_REQUEST_HEADERS,
            allow_credentials=False, expose_headers=_EXPOSED,
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request; the console's pages get no CORS headers."""
        path = scope.get("path", "")
        of_api = path == "/health" or path.startswith(("/api/", "/health/"))
        await (self._cors if of_api else self._app)(scope, receive, send)
