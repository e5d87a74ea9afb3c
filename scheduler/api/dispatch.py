"""Direct routes: served without FastAPI's routing, middleware and dependency injection.

FastAPI declares them and writes their OpenAPI document. To serve GET /jobs/{id} through FastAPI costs 40 % more
processor time (docs/decisions/0013-api.md). A router opts in with `route_class=DirectRoute`.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Annotated, Any, get_args, get_origin
from uuid import UUID

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from scheduler.api.identity import Identity
from scheduler.api.requests import SECURED, Api

Scope = MutableMapping[str, Any]
Read = Callable[[Request], Any]
Check = Callable[[Request], Awaitable[Identity]]
_PLACEHOLDER = None  # for a path parameter in a key: no part of a path equals it


class DirectRoute(APIRoute):
    """A route that `Dispatch` serves: it runs the check of the route's `Identity` parameter, then the endpoint.

    Such a check authenticates, limits the rate and tests the role. With the identity that it returns the services
    test the tenant and write the audit. A route that needs more raises TypeError when it is declared.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        if any(dependency not in SECURED for dependency in self.dependencies):
            raise TypeError(f"{path}: a direct route runs no `dependencies`; take an Identity instead")
        self.parameters = tuple(self.param_convertors)  # of the path
        self.checks: list[Check] = []
        self._readers = [(parameter.name, self._reader(parameter))
                         for parameter in inspect.signature(endpoint, eval_str=True).parameters.values()]

    def _reader(self, parameter: inspect.Parameter) -> tuple[Read, bool]:
        """Return a function that reads the argument from a request, and whether to await it."""
        kind, name = parameter.annotation, parameter.name
        first, *markers = get_args(kind) if get_origin(kind) is Annotated else (None,)
        if first is Identity:
            self.checks.append(markers[0].dependency)
            return markers[0].dependency, True
        if kind == Api:
            return lambda request: request.scope["app"].state.services, False
        if kind is Request:
            return lambda request: request, False
        if name in self.parameters and kind in (UUID, str, int):
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            return lambda request: adapter.validate_python(request.scope["path_params"][name]), False
        if isinstance(first, type) and issubclass(first, BaseModel):
            return lambda request: first.model_validate(_query(request)), False
        raise TypeError(f"{self.path}: a direct route cannot take {parameter}")

    async def respond(self, request: Request) -> Response:
        """Read the arguments in the order of the parameters and call the endpoint."""
        problems: list[dict[str, Any]] = []
        arguments: dict[str, Any] = {}
        for name, (read, awaited) in self._readers:
            try:
                arguments[name] = await read(request) if awaited else read(request)
            except ValidationError as error:
                where = ("path", name) if name in self.parameters else ("query",)
                problems += [{**detail, "loc": (*where, *detail["loc"])}
                             for detail in error.errors(include_url=False)]
        if problems:
            raise RequestValidationError(problems)
        response: Response = await self.endpoint(**arguments)
        return response


class Dispatch:
    """An ASGI application that serves direct routes and passes all other requests to FastAPI."""

    def __init__(self, app: FastAPI, routes: Iterable[tuple[str, DirectRoute]]) -> None:
        """Take the routes with their full paths."""
        if app.user_middleware:
            raise TypeError("direct routes do not run FastAPI middleware")
        self._app = app
        self._routes: dict[tuple[str | None, ...], tuple[str, DirectRoute]] = {}
        self._positions: dict[int, set[tuple[int, ...]]] = {}  # of parameters in paths, by number of parts
        self._max_parts = 0
        for path, route in routes:
            parts = path.split("/")
            key = [_PLACEHOLDER if part.startswith("{") else part for part in parts]
            positions = tuple(index for index, part in enumerate(key) if part is _PLACEHOLDER)
            self._positions.setdefault(len(parts), set()).add(positions)
            self._max_parts = max(self._max_parts, len(parts))
            for method in route.methods or ():
                self._routes[(method, *key)] = (path, route)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one request."""
        route = self._find(scope) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        request = Request(scope, receive)
        try:
            response = await route.respond(request)
        except Exception as error:  # noqa: BLE001 - raised again if it has no handler
            response = await self._handle(request, error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> DirectRoute | None:
        parts: list[str | None] = scope["path"].split("/", self._max_parts)
        if len(parts) > self._max_parts:
            return None
        method = scope["method"]
        match = self._routes.get((method, *parts))
        if match is None:
            for positions in self._positions.get(len(parts), ()):
                key = [_PLACEHOLDER if index in positions else part for index, part in enumerate(parts)]
                match = self._routes.get((method, *key))
                if match is not None and all(parts[index] for index in positions):
                    values = (parts[index] for index in positions)
                    scope["path_params"] = dict(zip(match[1].parameters, values, strict=True))
                    break
            else:
                return None
        scope["route_path"] = match[0]
        return match[1]

    async def _handle(self, request: Request, error: Exception) -> Response:
        for kind in type(error).__mro__:
            handler = self._app.exception_handlers.get(kind)
            if handler is not None:
                response: Response = await handler(request, error)  # type: ignore[misc]  # all our handlers are coroutines
                return response
        raise error


def _query(request: Request) -> dict[str, str]:
    """Return the query parameters; raise RequestValidationError if one is repeated."""
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            problem = {"loc": ("query", name), "type": "repeated", "msg": "must not be repeated"}
            raise RequestValidationError([problem])
        values[name] = value
    return values
