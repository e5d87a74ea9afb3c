"""One API for the tests of a module that need no more than that: they keep out of each other's way by tenants."""

from collections.abc import Iterator

import pytest
from api_support import Api, start_api
from support import Host, Sidecar, patiently

from scheduler.rabbit import topology


@pytest.fixture(scope="module")
def shared(stack, template) -> Iterator[Sidecar]:
    """A database and a virtual host for a whole module, with a producer."""
    database_url, vhost = stack.create_database(template=template), stack.create_vhost()
    patiently(lambda: topology.declare(vhost, queue_type="quorum", due_queue_type="default"))
    sidecar = Sidecar(database_url, vhost)
    yield sidecar
    codes = sidecar.close()
    stack.drop_database(database_url)
    stack.delete_vhost(vhost)
    assert all(code in (0, -9) for code in codes), [p.raw[-3:] for p in sidecar.processes]


@pytest.fixture(scope="module")
def served(shared) -> Api:
    """The API on it."""
    return start_api(shared)


@pytest.fixture(scope="module")
def shared_host(shared) -> Iterator[Host]:
    """Its host, with a running consumer and producer."""
    for role in ("consumer", "producer"):
        shared.start(role).ready()
    host = Host(shared.amqp_url)
    yield host
    host.close()


@pytest.fixture
def api(served, request) -> Api:
    """The API as an operator of a tenant that is this test's own sees it."""
    return served.as_("operator", f"t-{abs(hash(request.node.nodeid))}")
