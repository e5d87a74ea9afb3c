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
from scheduler.api.requests import SECURED, Serve

Scope = MutableMapping[str, Any]
Read = Callable[[Request], Any]
Check = Callable[[Request], Awaitable[Identity]]
_PLACEHOLDER = None  # stands for a path parameter in a key: no part of a path equals it


class DirectRoute(APIRoute):
    """A route that `Dispatch` serves: it runs the check of the route's `Identity` parameter, then the endpoint.

    Such a check authenticates, limits the rate and tests the role. With the identity that it returns the services
    test the tenant and write the audit. A route that needs more raises TypeError when it is declared.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        if any(each not in SECURED for each in self.dependencies):
            raise TypeError(f"{path}: a direct route runs no `dependencies`; take an Identity instead")
        self.parameter = next(iter(self.param_convertors), None)  # of the path
        self.checks: list[Check] = []
        self._readers = [(each.name, self._reader(each))
                         for each in inspect.signature(endpoint, eval_str=True).parameters.values()]

    def _reader(self, parameter: inspect.Parameter) -> tuple[Read, bool]:
        """Return how to read an argument from a request, and whether to await it."""
        kind, name = parameter.annotation, self.parameter
        first, *markers = get_args(kind) if get_origin(kind) is Annotated else (None,)
        if first is Identity:
            self.checks.append(markers[0].dependency)
            return markers[0].dependency, True
        if kind == Serve:
            return lambda request: request.scope["app"].state.services, False
        if kind is Request:
            return lambda request: request, False
        if parameter.name == name and kind in (UUID, str):
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
                where = ("path", name) if name == self.parameter else ("query",)
                problems += [{**each, "loc": (*where, *each["loc"])} for each in error.errors(include_url=False)]
        if problems:
            raise RequestValidationError(problems)
        response: Response = await self.endpoint(**arguments)
        return response


class Dispatch:
    """An application in front of FastAPI's: serves direct routes and leaves all others to FastAPI."""

    def __init__(self, app: FastAPI, routes: Iterable[tuple[str, DirectRoute]]) -> None:
        """Take the routes with their whole paths, which have one parameter at most."""
        if app.user_middleware:
            raise TypeError("a direct route runs no middleware of FastAPI's")
        self._app = app
        self._routes: dict[tuple[str | None, ...], tuple[str, DirectRoute]] = {}
        self._positions: set[int] = set()  # of parameters in paths
        self._max_parts = 0
        for path, route in routes:
            parts = path.split("/")
            key = [_PLACEHOLDER if part.startswith("{") else part for part in parts]
            self._positions.update(at for at, part in enumerate(key) if part is _PLACEHOLDER)
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
        found = self._routes.get((method, *parts))
        if found is None:
            for at in self._positions:
                if at < len(parts) and parts[at]:
                    value, parts[at] = parts[at], _PLACEHOLDER
                    found = self._routes.get((method, *parts))
                    parts[at] = value
                    if found is not None:
                        scope["path_params"] = {found[1].parameter: value}
                        break
        if found is None:
            return None
        scope["route_path"] = found[0]
        return found[1]

    async def _handle(self, request: Request, error: Exception) -> Response:
        for kind in type(error).__mro__:
            handler = self._app.exception_handlers.get(kind)
            if handler is not None:
                response: Response = await handler(request, error)  # type: ignore[misc]  # all of ours are coroutines
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
