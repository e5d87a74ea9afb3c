"""The shortest way from a request to its route.

FastAPI declares the routes and writes their document. To serve one it walks through its middleware, tries each
route's pattern and solves the dependencies anew, which takes longer than all that our routes do. What they ask for
is always one of a few things, so that it is worked out once, at the start; all else is left to FastAPI.
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
from scheduler.api.requests import Serve

Scope = MutableMapping[str, Any]
Read = Callable[[Request], Any]
Served = Callable[[Request], Awaitable[Response]]
_PLACE = None  # stands for what a path has in a place: no part of a path is like it


class Unknown(TypeError):  # noqa: N818 - a verdict, not an accident
    """A route asks for something that only FastAPI can give it."""


class Dispatch:
    """An application in front of FastAPI's: the routes that it knows are served here, all else there."""

    def __init__(self, app: FastAPI, routes: Iterable[tuple[str, APIRoute]]) -> None:
        self._app = app
        self._known: dict[tuple[str | None, ...], tuple[str, str | None, Served]] = {}
        self._places: set[int] = set()
        self._most_parts = 0
        for path, route in routes:
            parts = path.split("/")
            places = [at for at, part in enumerate(parts) if part.startswith("{")]
            name = parts[places[0]][1:-1] if places else None
            try:
                served = _served(route, name)
            except Unknown:
                continue
            self._places.update(places)
            self._most_parts = max(self._most_parts, len(parts))
            key = [_PLACE if at in places else part for at, part in enumerate(parts)]
            for method in route.methods or ():
                self._known[(method, *key)] = (path, name, served)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one request."""
        found = self._find(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        request = Request(scope, receive)
        try:
            response = await found(request)
        except Exception as error:  # noqa: BLE001 - what nobody here knows is raised again
            response = await self._answered(request, error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> Served | None:
        parts: list[str | None] = scope["path"].split("/", self._most_parts)
        if len(parts) > self._most_parts:
            return None
        method = scope["method"]
        found = self._known.get((method, *parts))
        if found is None:
            for at in self._places:
                if at < len(parts) and parts[at]:
                    given, parts[at] = parts[at], _PLACE
                    found = self._known.get((method, *parts))
                    parts[at] = given
                    if found is not None:
                        scope["path_params"] = {found[1]: given}
                        break
        if found is None:
            return None
        scope["route_path"] = found[0]
        return found[2]

    async def _answered(self, request: Request, error: Exception) -> Response:
        for kind in type(error).__mro__:
            handler = self._app.exception_handlers.get(kind)
            if handler is not None:
                response: Response = await handler(request, error)  # type: ignore[misc]  # all of ours are coroutines
                return response
        raise error


def _served(route: APIRoute, place: str | None) -> Served:
    """Return a route's own function with its arguments read in the order of its parameters."""
    endpoint = route.endpoint
    parameters = inspect.signature(endpoint, eval_str=True).parameters.values()
    reads = [(each.name, *_reader(each, place)) for each in parameters]

    async def serve(request: Request) -> Response:
        problems: list[dict[str, Any]] = []
        given: dict[str, Any] = {}
        for name, read, later in reads:
            try:
                given[name] = await read(request) if later else read(request)
            except ValidationError as error:
                where = "path" if name == place else "query"
                problems += [{**each, "loc": (where, *((name,) if name == place else ()), *each["loc"])}
                             for each in error.errors(include_url=False)]
        if problems:
            raise RequestValidationError(problems)
        response: Response = await endpoint(**given)
        return response

    return serve


def _reader(parameter: inspect.Parameter, place: str | None) -> tuple[Read, bool]:
    """Return how a parameter is read of a request, and whether that has to be awaited."""
    kind = parameter.annotation
    if get_origin(kind) is Annotated and get_args(kind)[0] is Identity:
        return get_args(kind)[1].dependency, True
    if kind == Serve:
        return lambda request: request.scope["app"].state.services, False
    if kind is Request:
        return lambda request: request, False
    if parameter.name == place and kind in (UUID, str):
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        return lambda request: adapter.validate_python(request.scope["path_params"][place]), False
    model = get_args(kind)[0] if get_origin(kind) is Annotated else None
    if isinstance(model, type) and issubclass(model, BaseModel):
        return lambda request: model.model_validate(dict(request.query_params)), False
    raise Unknown(f"{parameter}")
