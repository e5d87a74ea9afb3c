"""Create and delete vhosts: inside a private node, or through the management API of any other."""

import base64
import json
import time
import urllib.error
import urllib.request
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from scheduler.dev.servers.errors import ServerFailed
from scheduler.dev.servers.rabbitmq import RabbitServer

_TIMEOUT = 120
_RETRY_SECONDS = 60.0
_EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


class Vhosts(Protocol):
    """The broker operations that a stack needs."""

    def create(self, name: str) -> str:
        """Create a vhost with all permissions for us and return its URL."""

    def delete(self, name: str) -> None:
        """Delete a vhost with its contents."""


class NodeVhosts:
    """Calls the broker's own functions for vhosts: 20 to 30 ms, where each `rabbitmqctl` takes 700."""

    def __init__(self, server: RabbitServer) -> None:
        self._server = server

    def create(self, name: str) -> str:
        """Create a vhost with all permissions for us and return its URL."""
        user, vhost = f'<<"{self._server.user}">>', f'<<"{name}">>'
        everything = ",".join(['<<".*">>'] * 3)
        self._insist(
            f"ok = rabbit_vhost:add({vhost}, {user}), "
            f"ok = rabbit_auth_backend_internal:set_permissions({user}, {vhost}, {everything}, {user})"
        )
        return self._server.vhost_url(name)

    def delete(self, name: str) -> None:
        """Delete a vhost with its contents."""
        user, vhost = f'<<"{self._server.user}">>', f'<<"{name}">>'
        self._insist(f"rabbit_vhost:exists({vhost}) andalso rabbit_vhost:delete({vhost}, {user})")

    def _insist(self, expression: str) -> None:
        # A busy node may need longer than the broker's own timeout, for example to delete a quorum queue. Both
        # operations are idempotent, so they can be retried.
        limit = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                self._server.evaluate(expression)
            except ServerFailed:
                if not self._server.running or time.monotonic() > limit:
                    raise
            else:
                return
            time.sleep(0.1)


class ManagedVhosts:
    """Talks to the management plugin's HTTP API with the AMQP URL's user."""

    def __init__(self, amqp_url: str, management_url: str | None = None) -> None:
        # A comma-separated list names the nodes of one cluster: any of them works.
        self._amqp = urlsplit(amqp_url.partition(",")[0])
        self._management = management_url or _guess(self._amqp.scheme, self._amqp.hostname)

    def create(self, name: str) -> str:
        """Create a vhost with all permissions for us and return its URL."""
        user = unquote(self._amqp.username or "guest")
        self._call("PUT", f"vhosts/{quote(name, safe='')}", {})
        self._call("PUT", f"permissions/{quote(name, safe='')}/{quote(user, safe='')}", _EVERYTHING)
        return urlunsplit(self._amqp._replace(path=f"/{quote(name, safe='')}"))

    def delete(self, name: str) -> None:
        """Delete a vhost with its contents."""
        self._call("DELETE", f"vhosts/{quote(name, safe='')}", None)

    def _call(self, method: str, path: str, body: dict[str, str] | None) -> None:
        user, password = unquote(self._amqp.username or "guest"), unquote(self._amqp.password or "guest")
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - the scheme is http or https
            f"{self._management}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310 - our own node
                pass
        except OSError as error:
            raise ServerFailed(
                f"cannot manage vhosts at {self._management} ({error}): the broker needs the plugin "
                "rabbitmq_management, and its user the tag administrator"
            ) from error


def name_of(url: str) -> str:
    """Return the vhost that an AMQP URL names."""
    return unquote(urlsplit(url).path.removeprefix("/")) or "/"


def _guess(scheme: str, host: str | None) -> str:
    return f"https://{host}:15671" if scheme == "amqps" else f"http://{host or 'localhost'}:15672"
