"""The environment of `scheduler dev`: its servers, and the variables that its processes inherit."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from scheduler import settings
from scheduler.settings import Settings

_SERVERS = ("DATABASE_URL", "AMQP_URL")


@dataclass(frozen=True, slots=True)
class GivenServers:
    """The user's own servers, for `--use-env`; None stands for a private one."""

    settings: Settings
    database_url: str | None = None
    amqp_url: str | None = None


def read(environment: MutableMapping[str, str], say: Callable[[str], None], *, use_env: bool) -> GivenServers:
    """Read the settings. Without `use_env` the variables that name servers are removed, and named, unread."""
    if not use_env:
        _remove_servers(environment, say)
    config = settings.load(environment)
    database, broker = (bool(environment.get(name) or environment.get(f"{name}_FILE")) for name in _SERVERS)
    # A comma-separated list names the nodes of one cluster: any of them works.
    return GivenServers(config, config.database_url if database else None, config.amqp_urls[0] if broker else None)


def _remove_servers(environment: MutableMapping[str, str], say: Callable[[str], None]) -> None:
    for name in (f"{server}{suffix}" for server in _SERVERS for suffix in ("", "_FILE")):
        if environment.pop(name, ""):
            say(f"{name} is ignored: `scheduler dev` starts private servers. Use yours with --use-env.")
    # libpq would apply PGSSLMODE, PGSERVICE and the like to the private server too.
    for name in [variable for variable in environment if variable.startswith("PG")]:
        del environment[name]
